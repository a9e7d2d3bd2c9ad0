"""Patches that make trio's scheduling order a function of the seed.

Private names of trio 0.35: a canary test watches them.

The scheduler's shuffle is seeded, deadlines that tie go by the order they were made, and cancellation reaches tasks in
the order they were started; all three would otherwise follow memory addresses.
"""

from __future__ import annotations

import itertools
from typing import Any

import trio._core._run as run


class OrderedSet(dict[Any, None]):
    """A stand-in for a set that remembers the order of insertion."""

    def add(self, item: Any) -> None:
        """Put in."""
        self[item] = None

    def remove(self, item: Any) -> None:
        """Take out; KeyError where it is not."""
        del self[item]

    def discard(self, item: Any) -> None:
        """Take out if it is there."""
        self.pop(item, None)


_original_init = run.CancelStatus.__init__


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    _original_init(self, *args, **kwargs)
    self._tasks = OrderedSet.fromkeys(self._tasks)
    self._children = OrderedSet.fromkeys(self._children)


def make_deterministic(seed: int) -> None:
    """Seed the scheduler of the next ``trio.run``."""
    counter = itertools.count()
    module: Any = run
    module._ALLOW_DETERMINISTIC_SCHEDULING = True
    module._r.seed(seed)
    module.id = lambda _: next(counter)
    module.CancelStatus.__init__ = _init
