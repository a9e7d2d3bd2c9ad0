"""Who may commit and read positions of a consumer group: in the member's epoch, or since it got the partition.

Source: ``ConsumerGroup.validateOffsetCommit``, ``validateOffsetFetch`` (apache/kafka 4.3.1), KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.groups.consumer.state import ConsumerGroup, Member
from ottla.broker.groups.offsets import NewOffset
from ottla.wire.errors import ErrorCode, ProtocolError

EPOCHS_FROM = 9
"""From this version on OffsetCommit and OffsetFetch know member epochs."""


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, version: int, offsets: Iterable[NewOffset], *, txn: bool = False
) -> None:
    """Whether a member may commit these; from outside a group it goes while nobody is in it, or in a transaction.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if epoch < 0 and (not group.members or (txn and epoch == -1 and not member_id)):
        return
    member = group.member(member_id)
    if not txn and member.classic is None and version < EPOCHS_FROM:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return
    for new in offsets if epoch < member.epoch else ():
        since = _since(member, new.topic_id, new.partition)
        if since is None or epoch < since:
            raise _stale(member, txn=txn)
    if epoch > member.epoch:
        raise _stale(member, txn=txn)


def _since(member: Member, topic: bytes, partition: int) -> int | None:
    for held in (member.assigned, member.revoking):
        if topic in held and partition in held[topic]:
            return held[topic][partition]
    return None


def _stale(member: Member, *, txn: bool = False) -> ProtocolError:
    older = member.classic is not None or txn
    return ProtocolError(ErrorCode.ILLEGAL_GENERATION if older else ErrorCode.STALE_MEMBER_EPOCH)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
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
        raise _stale(member)
