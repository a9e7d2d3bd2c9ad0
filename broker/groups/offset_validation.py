"""Validation of OffsetCommit, TxnOffsetCommit and OffsetFetch requests to consumer and streams groups.

Source: ``ConsumerGroup.validateOffsetCommit``, ``StreamsGroup.validateOffsetCommit`` and their ``validateOffsetFetch``
(apache/kafka 4.3.1), KIP-848, KIP-1071, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.modern_group import AssignedGroup
from ottla.wire.errors import ErrorCode, ProtocolError

MEMBER_EPOCH_VERSION = 9
"""First version of OffsetCommit and OffsetFetch with member epochs."""


def validate_offset_commit(
    group: AssignedGroup[Any, Any],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    offsets: Iterable[OffsetToCommit],
    *,
    txn: bool = False,
) -> None:
    """Check that the member epoch of a commit is current, or not older than the assignment of each committed partition.

    A request without an epoch is allowed while the group has no members; in a transaction (``txn``) also one without
    epoch, member id and instance id. ``epoch``: member epoch or generation of the request, negative if omitted;
    ``version``: API version, which must be 9 or later outside of a transaction, unless the member uses the classic
    protocol.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION; STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a
            transaction or a member with the classic protocol.
    """
    if epoch < 0 and (not group.members or (txn and epoch == -1 and not member_id and instance_id is None)):
        return
    member = group.require_member(member_id)
    if not txn and not member.uses_classic_protocol and version < MEMBER_EPOCH_VERSION:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch > member.epoch:
        raise _stale_epoch_error(member, txn=txn)
    for offset in offsets if epoch < member.epoch else ():
        since = group.assignment_epoch(member, offset)
        if since is None or epoch < since:
            raise _stale_epoch_error(member, txn=txn)


def _stale_epoch_error(member: Any, *, txn: bool = False) -> ProtocolError:
    is_generation = member.uses_classic_protocol or txn
    return ProtocolError(ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH)


def validate_offset_fetch(group: AssignedGroup[Any, Any], member_id: str | None, epoch: int) -> None:
    """Check that an OffsetFetch request names no member (None and a negative epoch), or a member and its current epoch.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if member_id is None and epoch < 0:
        return
    member = group.require_member(member_id or "")
    if epoch != member.epoch:
        raise _stale_epoch_error(member)
