"""Bugs planted in the groups of Kafka 4: assignments, persisted state, and delivery of records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed
from typing import Any

from ottla.broker.groups import offset_validation
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import reconciliation
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.streams import reconciliation as tasks
from ottla.broker.groups.streams.groups import StreamsGroups
from ottla.broker.groups.streams.streams_group import StreamsGroup, TasksTuple
from ottla.broker.share_partitions import acknowledgement
from ottla.broker.share_partitions.in_flight import InFlightState, RecordState
from ottla.broker.share_partitions.share_partition import SharePartition
from ottla.broker.share_partitions.share_partition_leader import SharePartitionLeader
from ottla.broker.share_state.persister import Persister
from ottla.wire.errors import ErrorCode, ProtocolError
from sim.tests.seeded_faults.seeding import patch


def skip_waiting_for_revocation() -> None:
    """A revocation counts as done before the member has confirmed it."""
    reconciliation._owns_any = lambda *_: False


def ignore_current_owners() -> None:
    """Partitions of a member's target are free regardless of their current owner."""
    ConsumerGroup.owner_epoch = lambda *_: -1  # type: ignore[method-assign]


def never_release_partitions() -> None:
    """Partitions stay with a member after revocation or removal."""
    ConsumerGroup._remove_owned = lambda *_: iter(())  # type: ignore[method-assign]


def never_expire_members() -> None:
    """Sessions of consumer groups never expire."""
    ConsumerGroups.arm_session = lambda *_: None  # type: ignore[method-assign]


def forget_sessions_at_a_start() -> None:
    """Sessions of members that were loaded at a start are not watched."""

    def restore(self: ConsumerGroups, now_ms: int) -> Iterator[GroupEffects]:
        yield GroupEffects()

    ConsumerGroups.restore_timers = restore  # type: ignore[method-assign]


def ignore_rebalance_timeout() -> None:
    """The rebalance timeout of a member that does not revoke is never applied."""
    ConsumerGroups.watch_revocation = lambda *_: None  # type: ignore[method-assign]
    reconciliation._owns_any = lambda owned, held: True


def skip_member_check_on_commit() -> None:
    """The member of an offset commit is not checked."""
    offset_validation.validate_offset_commit = lambda *_, **__: None


def never_resolve_regex() -> None:
    """Regular expressions match no topic."""
    patch(ConsumerGroup, "subscribed_topics", lambda _: lambda self, member: member.subscribed_topic_names)


def never_expire_locks() -> None:
    """Acquisition locks never expire."""
    SharePartitionLeader._expire_locks = lambda *_: None  # type: ignore[method-assign]


def expire_all_locks() -> None:
    """The expiry of one lock expires all."""
    acknowledgement._is_lock_expired = lambda state, _: (
        acknowledgement._is_locked(state) and state.rollback_state is None
    )


def acquire_acquired_records() -> None:
    """An acquired record counts as available."""
    InFlightState.is_available = property(  # type: ignore[assignment,method-assign]
        lambda self: self.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and self.rollback_state is None
    )


def archive_before_last_delivery() -> None:
    """The last delivery is skipped."""
    patch(InFlightState, "try_update_state", lambda real: lambda self, state, limit: real(self, state, limit - 1))


def advance_over_acquired_records() -> None:
    """The start offset advances over acquired records."""
    RecordState.is_final = property(lambda self: self >= RecordState.ACQUIRED)  # type: ignore[assignment,method-assign]


def skip_writing_acknowledgements() -> None:
    """Acknowledgements are confirmed and not persisted."""

    async def keep(self: SharePartitionLeader, batches: Any) -> None:
        return None

    SharePartitionLeader._await_persisted = keep  # type: ignore[method-assign,assignment]


def skip_reading_share_state() -> None:
    """A leader starts from the start offset, without the state behind it."""

    def make(real: Any) -> Any:
        async def read(self: Persister, *at: Any) -> Any:
            return changed(await real(self, *at), batches=())

        return read

    patch(Persister, "read", make)


def accept_foreign_acknowledgements() -> None:
    """An acknowledgement is accepted from a member that has not acquired the record."""

    def make(real: Any) -> Any:
        def acknowledge(share: SharePartition, member_id: str, acknowledged: Any, now_ms: int) -> Any:
            for one in acknowledged:
                batch = share.last_batch_at_or_before(one.first_offset)
                if batch is not None and batch.last_offset >= one.first_offset:
                    member_id = batch.state_at(one.first_offset).member_id or member_id
            return real(share, member_id, acknowledged, now_ms)

        return acknowledge

    patch(acknowledgement, "acknowledge_records", make)


def reject_some_acknowledgements() -> None:
    """Every thirtieth acknowledgement is rejected."""
    count = [0]

    def make(real: Any) -> Any:
        def acknowledge(*rest: Any) -> Any:
            count[0] += 1
            if count[0] % 30 == 0:
                raise ProtocolError(ErrorCode.INVALID_RECORD_STATE)
            return real(*rest)

        return acknowledge

    patch(acknowledgement, "acknowledge_records", make)


def archive_released_records() -> None:
    """Released records are archived."""

    def make(real: Any) -> Any:
        def change(self: InFlightState, state: RecordState, limit: int) -> bool:
            return bool(real(self, RecordState.ARCHIVED if state is RecordState.AVAILABLE else state, limit))

        return change

    patch(InFlightState, "try_update_state", make)


def skip_waiting_for_task_revocation() -> None:
    """A task revocation counts as done before the thread has confirmed it."""
    TasksTuple.overlaps = lambda *_: False  # type: ignore[method-assign]


def forget_task_owner() -> None:
    """The process that owns a task is unknown."""
    StreamsGroup._add_owned = lambda *_: iter(())  # type: ignore[method-assign]


def allow_task_in_two_roles() -> None:
    """A process may have a task in any number of roles."""
    tasks._holds = lambda *_: False


def never_release_tasks() -> None:
    """Tasks stay with their process after revocation or removal of the thread."""
    StreamsGroup._remove_owned = lambda *_: iter(())  # type: ignore[method-assign]


def never_expire_streams_members() -> None:
    """Sessions of streams groups never expire."""
    StreamsGroups.arm_session = lambda *_: None  # type: ignore[method-assign]
