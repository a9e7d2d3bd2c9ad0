"""Patches that make trio's scheduling order a function of the seed.

The scheduler's shuffle is seeded, equal deadlines are ordered by their creation, and cancellation reaches tasks in the
order of their start; all three would otherwise depend on memory addresses. The patches use private names of trio 0.35,
which a test checks.
"""

from __future__ import annotations

import itertools
from typing import Any

import trio._core._run as run


class OrderedSet(dict[Any, None]):
    """Replacement of a set that keeps the order of insertion."""

    def add(self, item: Any) -> None:
        """Add an item."""
        self[item] = None

    def remove(self, item: Any) -> None:
        """Remove an item. Raises KeyError if it is absent."""
        del self[item]

    def discard(self, item: Any) -> None:
        """Remove an item if it is present."""
        self.pop(item, None)


_original_init = run.CancelStatus.__init__


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    _original_init(self, *args, **kwargs)
    self._tasks = OrderedSet.fromkeys(self._tasks)
    self._children = OrderedSet.fromkeys(self._children)


def make_deterministic(seed: int) -> None:
    """Seed the scheduler of the next ``trio.run``, and patch trio for the rest of this Python process."""
    counter = itertools.count()
    module: Any = run
    module._ALLOW_DETERMINISTIC_SCHEDULING = True
    module._r.seed(seed)
    module.id = lambda _: next(counter)
    module.CancelStatus.__init__ = _init
