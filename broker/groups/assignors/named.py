"""The assignors there are; each is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.assignors.spec import Assigning, Spec, Unassignable


def assignor(name: str) -> Callable[[Spec], Assigning]:
    """The assignor of that name: ``uniform`` or ``range``.

    Raises:
        Unassignable: there is none of that name. A member's record may name one that no broker offers any more.
    """
    if name == "range":
        from ottla.broker.groups.assignors.range import assign as by_range

        return by_range
    from ottla.broker.groups.assignors.uniform import assign as uniformly

    if name != "uniform":
        raise Unassignable(f"no server assignor is named {name!r}")
    return uniformly
