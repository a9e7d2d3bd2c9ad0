"""Who may commit and read positions of a consumer group: in the member's epoch, or since it got the partition.

Source: ``ConsumerGroup.validateOffsetCommit``, ``validateOffsetFetch`` (apache/kafka 4.3.1), KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.wire.errors import ErrorCode, ProtocolError

MEMBER_EPOCH_VERSION = 9
"""From this version on OffsetCommit and OffsetFetch know member epochs."""


def validate_offset_commit(
    group: ConsumerGroup,
    member_id: str,
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
    if epoch < 0 and (not group.members or (txn and epoch == -1 and not member_id)):
        return
    member = group.require_member(member_id)
    if not txn and member.classic_metadata is None and version < MEMBER_EPOCH_VERSION:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return
    for new in offsets if epoch < member.epoch else ():
        since = _assignment_epoch(member, new.topic_id, new.partition)
        if since is None or epoch < since:
            raise _stale_member_error(member, txn=txn)
    if epoch > member.epoch:
        raise _stale_member_error(member, txn=txn)


def _assignment_epoch(member: ConsumerGroupMember, topic: bytes, partition: int) -> int | None:
    for held in (member.assigned, member.revoking):
        if topic in held and partition in held[topic]:
            return held[topic][partition]
    return None


def _stale_member_error(member: ConsumerGroupMember, *, txn: bool = False) -> ProtocolError:
    older = member.classic_metadata is not None or txn
    return ProtocolError(ErrorCode.ILLEGAL_GENERATION if older else ErrorCode.STALE_MEMBER_EPOCH)


def validate_offset_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Whether positions may be read: from outside, or by a member in its epoch.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise _stale_member_error(member)
