"""The assignors there are; each is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.assignors.spec import Assigning, Spec


def assignor(name: str) -> Callable[[Spec], Assigning]:
    """The assignor of that name: ``uniform`` or ``range``."""
    if name == "range":
        from ottla.broker.groups.assignors.range import assign as by_range

        return by_range
    from ottla.broker.groups.assignors.uniform import assign as uniformly

    assert name == "uniform"
    return uniformly
