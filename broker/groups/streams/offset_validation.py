"""Who may commit and read positions of a streams group: in the member's epoch, or since it got the task.

Source: ``StreamsGroup.validateOffsetCommit``, ``validateOffsetFetch`` (apache/kafka 4.3.1), KIP-1071, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.streams.streams_group import StreamsGroup, StreamsGroupMember
from ottla.wire.errors import ErrorCode, ProtocolError

MEMBER_EPOCH_VERSION = 9
"""From this version on OffsetCommit knows member epochs."""


def validate_offset_commit(
    group: StreamsGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    offsets: Iterable[OffsetToCommit],
    *,
    txn: bool = False,
) -> None:
    """Whether a member may commit these; from outside a group it goes while nobody is in it, or in a transaction.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if epoch < 0 and not group.members:
        return
    if txn and epoch == -1 and not member_id and instance_id is None:
        return
    member = group.require_member(member_id)
    if not txn and version < MEMBER_EPOCH_VERSION:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return
    stale = ProtocolError(ErrorCode.ILLEGAL_GENERATION if txn else ErrorCode.STALE_MEMBER_EPOCH)
    if epoch > member.epoch or group.topology is None:
        raise stale
    for new in offsets:
        since = _assignment_epoch(member, group.topology.subtopology_by_source.get(new.topic), new.partition)
        if since is None or epoch < since:
            raise stale


def _assignment_epoch(member: StreamsGroupMember, subtopology: str | None, partition: int) -> int | None:
    """In which epoch a member got the active task that reads a partition."""
    for held in (member.assigned, member.revoking):
        since = held.active.get(subtopology or "", {}).get(partition)
        if since is not None:
            return since
    return None


def validate_offset_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Whether positions may be read: from outside, or by a member in its epoch.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    """
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise ProtocolError(ErrorCode.STALE_MEMBER_EPOCH)
