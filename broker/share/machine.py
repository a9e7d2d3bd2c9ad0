"""The machine of one partition of `__share_group_state`: share partitions' states, written, read, fenced.

The leader of a share partition writes here what became of records before it tells its consumers; whoever leads after
it reads that first, with its own leader epoch, and what the old one still sends is refused.

Source: ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.share import state as st
from ottla.broker.share.batches import StateBatch, combine
from ottla.broker.share.records import ShareRecord
from ottla.broker.share.state import SharePartitionKey, ShareState, States
from ottla.log.machine import Effects, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

Fx = Effects[ShareRecord]
_COLD = ("cold",)
MOST_BATCHES = 10_000
"""So many at most are written at once: ``group.share.partition.max.record.locks`` cannot be more."""
MOST_REMEMBERED = 3 * MOST_BATCHES
"""What is remembered of a share partition has few more batches than records may be in flight."""


class ShareSettings(NamedTuple):
    """Broker settings of the share coordinator."""

    updates_per_snapshot: int = 500
    cold_every_ms: int = 300_000


class Initialize(NamedTuple):
    """Begin a share partition; ``start_offset`` -1 leaves it to the first reader. The answer is True or a refusal."""

    ticket: Any
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """What is remembered, for a new leader; the answer is a `ShareState` or a refusal."""

    ticket: Any
    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    """What became of some records; the answer is True or a refusal."""

    ticket: Any
    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Delete(NamedTuple):
    """Forget a share partition; the answer is True or a refusal."""

    ticket: Any
    key: SharePartitionKey


class Summary(NamedTuple):
    """Where a group stands; the answer is a `ShareState`, `st.NEVER` where nothing is remembered, or a refusal."""

    ticket: Any
    key: SharePartitionKey


class TopicsGone(NamedTuple):
    """Topics were deleted: nothing about them is remembered any longer."""

    ids: frozenset[bytes]


def _refusal(code: ErrorCode, text: str | None = None) -> ProtocolError:
    return ProtocolError(code, text or code.text)


class ShareStateMachine:
    """``handle`` decides, ``replay`` takes in records."""

    def __init__(self, settings: ShareSettings, partitions_of: Callable[[bytes], int]) -> None:
        self._settings = settings
        self._partitions_of = partitions_of
        """How many partitions the topic of an id has now; 0 where there is none."""
        self.states = States(settings.updates_per_snapshot)
        self.replay = self.states.replay

    def handle(self, now_ms: int, event: Any) -> Fx:
        """One event."""
        match event:
            case Loaded():
                return Fx(timers=[self._next_look(now_ms)])
            case Fired(key=("cold",)):
                fx = Fx(timers=[self._next_look(now_ms)])
                fx.add_records(self._cold(now_ms))
                return fx
            case TopicsGone():
                fx = Fx()
                fx.add_records(
                    st.tombstone(key) if key.topic_id in event.ids else None for key in list(self.states.by_key)
                )
                return fx
            case Closed() | Unloaded() | Settled():
                return Fx()
        try:
            return self._asked(event, now_ms)
        except ProtocolError as error:
            return Fx(replies=[RequestReply(event.ticket, error.with_traceback(None))])

    def _asked(self, event: Any, now_ms: int) -> Fx:
        if event.key.partition < 0:
            raise _refusal(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        match event:
            case Initialize():
                return self._initialize(event, now_ms)
            case Read():
                return self._read(event, now_ms)
            case Write():
                return self._write(event, now_ms)
            case Delete():
                return self._delete(event)
            case Summary():
                self._check_topic(event.key)
                return Fx(replies=[RequestReply(event.ticket, self.states.by_key.get(event.key, st.NEVER))])
            case _:
                raise AssertionError(event)

    # ------------------------------------------------------------------ checks

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partitions_of(key.topic_id):
            raise _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _state(self, key: SharePartitionKey, verb: str) -> ShareState:
        state = self.states.by_key.get(key)
        if state is None:
            text = f"{verb} operation on uninitialized share partition not allowed."
            raise _refusal(ErrorCode.INVALID_REQUEST, text)
        return state

    def _check_leader(self, key: SharePartitionKey, leader_epoch: int) -> None:
        if leader_epoch != -1 and self.states.leader_epochs.get(key, leader_epoch) > leader_epoch:
            raise _refusal(ErrorCode.FENCED_LEADER_EPOCH)

    def _check_epoch(self, key: SharePartitionKey, state_epoch: int) -> None:
        if state_epoch != -1 and self.states.state_epochs.get(key, state_epoch) > state_epoch:
            raise _refusal(ErrorCode.FENCED_STATE_EPOCH)

    # ------------------------------------------------------------------ requests

    def _initialize(self, event: Initialize, now_ms: int) -> Fx:
        self._check_epoch(event.key, event.state_epoch)
        self._check_topic(event.key)
        old = self.states.by_key.get(event.key)
        fresh = ShareState(
            0 if old is None else old.snapshot_epoch + 1,
            event.state_epoch,
            0,
            event.start_offset,
            st.UNINITIALIZED if event.start_offset == st.UNINITIALIZED else 0,
            (),
            now_ms,
            now_ms,
        )
        return Fx([st.snapshot(event.key, fresh)], [RequestReply(event.ticket, True)])

    def _read(self, event: Read, now_ms: int) -> Fx:
        state = self._state(event.key, "Read")
        self._check_leader(event.key, event.leader_epoch)
        self._check_topic(event.key)
        fx = Fx(replies=[RequestReply(event.ticket, state)])
        if event.leader_epoch not in (-1, self.states.leader_epochs.get(event.key)):
            begun = Write(
                *(None, event.key, state.state_epoch, event.leader_epoch),
                *(state.start_offset, state.delivery_complete_count, ()),
            )
            fx.records.append(self._written(begun, state, event.leader_epoch, now_ms))
        return fx

    def _write(self, event: Write, now_ms: int) -> Fx:
        state = self._state(event.key, "Write")
        if len(event.batches) > MOST_BATCHES:
            raise _refusal(ErrorCode.INVALID_REQUEST, f"More than {MOST_BATCHES} batches were given.")
        if len(state.batches) + len(event.batches) > MOST_REMEMBERED:
            raise _refusal(ErrorCode.INVALID_REQUEST, f"More than {MOST_REMEMBERED} batches would be remembered.")
        self._check_leader(event.key, event.leader_epoch)
        self._check_epoch(event.key, event.state_epoch)
        self._check_topic(event.key)
        return Fx([self._written(event, state, state.leader_epoch, now_ms)], [RequestReply(event.ticket, True)])

    def _written(self, event: Write, state: ShareState, leader_epoch: int, now_ms: int) -> ShareRecord:
        """An update, or a snapshot of everything where enough updates have come."""
        if not self.states.snapshot_is_due(event.key):
            changed = replace(
                state,
                leader_epoch=leader_epoch,
                start_offset=event.start_offset,
                delivery_complete_count=event.delivery_complete_count,
                batches=tuple(combine((), event.batches, event.start_offset)),
            )
            return st.update(event.key, changed)
        start = state.start_offset if event.start_offset == st.UNINITIALIZED else event.start_offset
        whole = ShareState(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start,
            event.delivery_complete_count,
            tuple(combine(state.batches, event.batches, start)),
            now_ms,
            now_ms,
        )
        return st.snapshot(event.key, whole)

    def _delete(self, event: Delete) -> Fx:
        self._check_topic(event.key)
        records = [st.tombstone(event.key)] if event.key in self.states.by_key else []
        return Fx(records, [RequestReply(event.ticket, True)])

    # ------------------------------------------------------------------ now and then

    def _next_look(self, now_ms: int) -> ScheduleTimer:
        return ScheduleTimer(_COLD, now_ms + self._settings.cold_every_ms)

    def _cold(self, now_ms: int) -> Iterator[ShareRecord | None]:
        """Snapshots of what nobody wrote for long: their old records would keep the log from being cut."""
        if all(state.create_ms != state.write_ms for state in self.states.by_key.values()):
            return
        for key, state in list(self.states.by_key.items()):
            if now_ms - state.write_ms < self._settings.cold_every_ms:
                yield None
            else:
                yield st.snapshot(key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_ms=now_ms))
