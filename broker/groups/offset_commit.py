"""OffsetCommit and TxnOffsetCommit for groups of all types; those for share groups are rejected.

Source: ``OffsetMetadataManager.commitOffset``, ``commitTransactionalOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import GroupEffects, arm_session
from ottla.broker.groups.committed_offsets import OffsetToCommit, offset_commit_records, validate_offset_commit
from ottla.jobs.state_machine import RequestReply, TransactionContext
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError


class CommitOffsets(NamedTuple):
    """Event: commit offsets with resolved topic ids; the reply is one error code for all of them.

    A failed write replies with a `ProtocolError` instead. ``generation`` is negative if omitted; ``retention_ms`` is
    negative where `offsets.retention.minutes` applies.
    """

    pending_request: Any
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int
    offsets: Iterable[OffsetToCommit]
    version: int
    txn: TransactionContext | None = None
    """Transaction of the commit; None for a commit outside a transaction."""


class GroupLookup(Protocol):
    """Lookup of groups of all types: the interface of `GroupStateMachine` that offset commits use."""

    @property
    def classic_groups(self) -> ClassicGroups:
        """The classic groups of the shard."""

    def find_consumer_group(self, group_id: str) -> Any:
        """Return the consumer group with an id; None if there is none."""

    def find_share_group(self, group_id: str) -> Any:
        """Return the share group with an id; None if there is none."""

    def find_streams_group(self, group_id: str) -> Any:
        """Return the streams group with an id; None if there is none."""


def commit_offsets(machine: GroupLookup, event: CommitOffsets, now_ms: int) -> GroupEffects:
    """Return the effects of a commit: its records, none if it is rejected, and one error code as the reply.

    An accepted commit outside of a transaction also restarts the session timeout of a member of a classic group.
    """
    fx = GroupEffects()
    group = machine.classic_groups.groups.get(event.group_id)
    try:
        event = _validate(machine, group, event)
    except ProtocolError as error:
        fx.replies.append(RequestReply(event.pending_request, error.code))
        return fx
    if event.txn is not None:
        # the records have no topic id
        nameless = (x._replace(topic_id=ZERO_UUID) for x in event.offsets)
        fx.add_records(offset_commit_records(event.group_id, nameless, now_ms, -1), event.txn)
        fx.replies.append(RequestReply(event.pending_request, ErrorCode.NONE))
        return fx
    if group is not None and group.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
        member = group.members.get(event.member_id)
        if member is not None:
            arm_session(group, member, now_ms, fx)
    expire = -1 if event.retention_ms < 0 else now_ms + event.retention_ms
    fx.add_records(offset_commit_records(event.group_id, event.offsets, now_ms, expire))
    fx.replies.append(RequestReply(event.pending_request, ErrorCode.NONE))
    return fx


def _validate(machine: GroupLookup, group: ClassicGroup | None, event: CommitOffsets) -> CommitOffsets:
    """Validate a commit by the rules of its group's type; return it, with ``offsets`` that can be iterated (once more).

    ``group``: the classic group with the id; None if there is none.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND for a share group, or an error of the validation for the group's type.
    """
    member_ids, txn = (event.member_id, event.instance_id), event.txn is not None
    if machine.find_share_group(event.group_id) is not None:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    assigned = machine.find_consumer_group(event.group_id) or machine.find_streams_group(event.group_id)
    if assigned is None:
        validate_offset_commit(group, *member_ids, event.generation, event.version, txn=txn)
        return event
    # lazy: 6.0 ms, 267 kB
    from ottla.broker.groups import offset_validation

    offsets = list(event.offsets)
    offset_validation.validate_offset_commit(assigned, *member_ids, event.generation, event.version, offsets, txn=txn)
    return event._replace(offsets=offsets)
