"""The assignors there are; each is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.assignors.group_spec import AssignmentJob, GroupSpec, PartitionAssignorException
from ottla.broker.groups.assignors.range_assignor import assign_range
from ottla.broker.groups.assignors.uniform_assignor import assign_uniform


def assignor_by_name(name: str) -> Callable[[GroupSpec], AssignmentJob]:
    """Return the assignor of that name: ``uniform`` or ``range``.

    Raises:
        Unassignable: there is none of that name. A member's record may name one that no broker offers any more.
    """
    if name == "range":
        return assign_range
    if name != "uniform":
        raise PartitionAssignorException(f"no server assignor is named {name!r}")
    return assign_uniform
