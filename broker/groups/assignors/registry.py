"""Server-side assignors of consumer groups, by name."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.assignors.group_spec import AssignmentJob, GroupSpec, PartitionAssignorException
from ottla.broker.groups.assignors.range_assignor import assign_range
from ottla.broker.groups.assignors.uniform_assignor import assign_uniform


def assignor_by_name(name: str) -> Callable[[GroupSpec], AssignmentJob]:
    """Return the assignor named ``uniform`` or ``range``.

    Raises:
        PartitionAssignorException: it is another name, such as from a member's record that a client has written.
    """
    if name == "range":
        return assign_range
    if name != "uniform":
        raise PartitionAssignorException(f"no server assignor is named {name!r}")
    return assign_uniform
