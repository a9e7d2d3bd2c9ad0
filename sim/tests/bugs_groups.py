"""Bugs planted in the groups of Kafka 4: who has what when, what is remembered of it, and what records go to whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed
from typing import Any

from ottla.broker.groups.consumer import offsets, reconcile
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.state import ConsumerGroup
from ottla.broker.groups.rebalance import GroupEffects
from ottla.broker.groups.streams import reconcile as tasks
from ottla.broker.groups.streams.groups import StreamsGroups
from ottla.broker.groups.streams.state import StreamsGroup, TasksTuple
from ottla.broker.share import acknowledging
from ottla.broker.share.in_flight import InFlightState, RecordState
from ottla.broker.share.partition import SharePartition
from ottla.broker.share.persister import Persister
from ottla.broker.share.shared import SharePartitionLeader
from ottla.wire.errors import ErrorCode, ProtocolError
from sim.tests.sowing import replace


def wait_for_no_revocation() -> None:
    """A member counts as having given up what it was told to, whatever it says."""
    reconcile._owns_any = lambda *_: False


def look_at_no_owner() -> None:
    """What is in a member's target is free."""
    ConsumerGroup.owner_epoch = lambda *_: -1  # type: ignore[method-assign]


def free_nothing() -> None:
    """What a member had stays its own when it has given it up, or is gone."""
    ConsumerGroup._remove_owned = lambda *_: None  # type: ignore[method-assign]


def expire_no_member() -> None:
    """Sessions of consumer groups have no end."""
    ConsumerGroups.arm_session = lambda *_: None  # type: ignore[method-assign]


def forget_sessions_at_a_start() -> None:
    """Members that were there before a start are not watched after it."""

    def restore(self: ConsumerGroups, now_ms: int) -> Iterator[GroupEffects]:
        yield GroupEffects()

    ConsumerGroups.restore_timers = restore  # type: ignore[method-assign]


def wait_for_whoever_is_slow() -> None:
    """A member that does not give up what it should has all the time of the world; and it never hears of it again."""
    ConsumerGroups.watch_revocation = lambda *_: None  # type: ignore[method-assign]
    reconcile._owns_any = lambda owned, held: True


def let_anybody_commit() -> None:
    """Nobody asks whether a position comes from a member of now."""
    offsets.validate_offset_commit = lambda *_, **__: None


def resolve_no_regex() -> None:
    """Regular expressions stand for nothing."""
    replace(ConsumerGroup, "subscribed_topics", lambda _: lambda self, member: member.names)


def expire_no_lock() -> None:
    """Who has a record may keep it."""
    SharePartitionLeader._expire_locks = lambda *_: None  # type: ignore[method-assign]


def end_every_lock() -> None:
    """Once one lock is over, all are."""
    acknowledging._is_lock_expired = lambda state, _: acknowledging._is_locked(state) and state.rollback_state is None


def lend_what_is_lent() -> None:
    """A record that somebody has counts as free."""
    InFlightState.is_available = property(  # type: ignore[assignment,method-assign]
        lambda self: self.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and self.before is None
    )


def give_up_early() -> None:
    """The last delivery is left out."""
    replace(InFlightState, "try_update_state", lambda real: lambda self, state, limit: real(self, state, limit - 1))


def count_what_is_out_as_done() -> None:
    """The start moves over records that members have."""
    RecordState.is_final = property(lambda self: self >= RecordState.ACQUIRED)  # type: ignore[assignment,method-assign]


def write_no_verdict() -> None:
    """What became of records is said to be kept, and is not."""

    async def keep(self: SharePartitionLeader, batches: Any) -> None:
        return None

    SharePartitionLeader._await_persisted = keep  # type: ignore[method-assign,assignment]


def read_no_verdicts() -> None:
    """A leader begins where the start is, and knows nothing of what lies behind it."""

    def make(real: Any) -> Any:
        async def read(self: Persister, *at: Any) -> Any:
            return changed(await real(self, *at), batches=())

        return read

    replace(Persister, "read", make)


def take_anybodys_word() -> None:
    """Who says what became of a record need not have it."""

    def make(real: Any) -> Any:
        def acknowledge(share: SharePartition, member_id: str, said: Any, now_ms: int) -> Any:
            for one in said:
                batch = share.last_batch_at_or_before(one.first_offset)
                if batch is not None and batch.last_offset >= one.first_offset:
                    member_id = batch.state_at(one.first_offset).member_id or member_id
            return real(share, member_id, said, now_ms)

        return acknowledge

    replace(acknowledging, "acknowledge_records", make)


def hear_some_only() -> None:
    """Every thirtieth word is refused."""
    count = [0]

    def make(real: Any) -> Any:
        def acknowledge(*rest: Any) -> Any:
            count[0] += 1
            if count[0] % 30 == 0:
                raise ProtocolError(ErrorCode.INVALID_RECORD_STATE)
            return real(*rest)

        return acknowledge

    replace(acknowledging, "acknowledge_records", make)


def give_up_what_comes_back() -> None:
    """Nobody gets a second time what was released."""

    def make(real: Any) -> Any:
        def change(self: InFlightState, state: RecordState, limit: int) -> bool:
            return bool(real(self, RecordState.ARCHIVED if state is RecordState.AVAILABLE else state, limit))

        return change

    replace(InFlightState, "try_update_state", make)


def wait_for_no_task() -> None:
    """A thread counts as having given up what it was told to, whatever it says."""
    TasksTuple.overlaps = lambda *_: False  # type: ignore[method-assign]


def note_no_doer() -> None:
    """Nobody knows which process does a task."""
    StreamsGroup._add_owned = lambda *_: None  # type: ignore[method-assign]


def do_in_several_roles() -> None:
    """A process may have a task in as many roles as it likes."""
    tasks._holds = lambda *_: False


def free_no_task() -> None:
    """What a thread did stays its process's when it has given it up, or is gone."""
    StreamsGroup._remove_owned = lambda *_: None  # type: ignore[method-assign]


def expire_no_thread() -> None:
    """Sessions of streams groups have no end."""
    StreamsGroups.arm_session = lambda *_: None  # type: ignore[method-assign]
