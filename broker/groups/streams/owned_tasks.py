"""Validation of the tasks and the member epoch that a StreamsGroupHeartbeat reports.

Source: ``GroupMetadataManager.throwIfStreamsGroupMemberEpochIsInvalid``, ``throwIfRequestContainsInvalidTasks``
(apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ottla.broker.groups.member_epochs import check_member_epoch
from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
from ottla.broker.groups.streams.streams_group import StreamsGroupMember, TasksBySubtopology, TasksTuple
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequestTaskIds as TaskIds

ReportedRole = Sequence[TaskIds] | None
ReportedTasks = tuple[ReportedRole, ReportedRole, ReportedRole]
"""Active, standby and warm-up tasks of a request; None where omitted."""


def check_epoch(member: StreamsGroupMember, epoch: int, rows: ReportedTasks) -> None:
    """Check that the epoch of a heartbeat is the member's current one.

    The previous epoch is also valid if the member reports a subset of its assigned tasks: it missed a response.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    has = member.assigned
    check_member_epoch(
        "streams",
        member,
        epoch,
        lambda: all(_is_part(*both) for both in zip(rows, (has.active, has.standby, has.warmup), strict=True)),
    )


def _is_part(role: ReportedRole, has: Mapping[str, Collection[int]]) -> bool:
    if role is None:
        return False
    return all(row.subtopology_id in has and set(has[row.subtopology_id]).issuperset(row.partitions) for row in role)


def check_tasks_exist(subtopologies: Mapping[str, ConfiguredSubtopology], rows: ReportedTasks) -> None:
    """Check that the subtopology and partition number of each reported task (``rows``) exist.

    Raises:
        ProtocolError: INVALID_REQUEST.
    """
    for row in (row for role in rows for row in role or ()):
        subtopology = subtopologies.get(row.subtopology_id)
        if subtopology is None:
            why = f"Subtopology {row.subtopology_id} does not exist in the topology."
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
        for number in row.partitions:
            if not 0 <= number < subtopology.task_count:
                why = (
                    f"Task {number} for subtopology {row.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.task_count}"
                )
                raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def owned_tasks(rows: ReportedTasks) -> TasksTuple | None:
    """Return the reported tasks; None if one of the three roles is omitted.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR if a subtopology is repeated, as in Kafka.
    """

    def tasks(role: ReportedRole) -> TasksBySubtopology:
        out = {row.subtopology_id: frozenset(row.partitions) for row in role or ()}
        if len(out) < len(role or ()):
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return out

    return None if None in rows else TasksTuple(*map(tasks, rows))
