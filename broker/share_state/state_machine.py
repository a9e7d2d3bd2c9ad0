"""State machine of one partition of `__share_group_state`: writes, reads and fencing of share partition states.

The leader of a share partition writes acknowledgements here before it confirms them to consumers; its successor reads
them first, with its own leader epoch, and later requests of the old leader are rejected.

Source: ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.broker.config.limits import MAX_STORED_SHARE_BATCHES, MAX_WRITTEN_SHARE_BATCHES
from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded, TimerExpired, WriteResult
from ottla.broker.share_state import share_group_offsets
from ottla.broker.share_state.records import ShareRecord
from ottla.broker.share_state.share_group_offsets import ShareGroupOffset, SharePartitionKey, SharePartitionStates
from ottla.broker.share_state.state_batches import PersisterStateBatch, combine_state_batches
from ottla.jobs.state_machine import Effects, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

ShareStateEffects = Effects[ShareRecord]
_COLD_SNAPSHOT_TIMER = ("cold",)


class ShareCoordinatorSettings(NamedTuple):
    """Broker settings of the share coordinator: update records per snapshot, and age of cold snapshots in ms."""

    updates_per_snapshot: int = 500
    cold_snapshot_interval_ms: int = 300_000


class InitializeShareState(NamedTuple):
    """Event: initialize a share partition, replacing its state; ``start_offset`` -1 leaves it to the first leader.

    The reply is True or a `ProtocolError`, such as FENCED_STATE_EPOCH.
    """

    pending_request: Any
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadShareState(NamedTuple):
    """Event: read a state for a new leader; the reply is a `ShareGroupOffset` or a `ProtocolError`.

    The leader epoch is stored if it is new, so that requests with an older one are rejected (FENCED_LEADER_EPOCH). -1
    is neither stored nor rejected. Without a state the reply is INVALID_REQUEST.
    """

    pending_request: Any
    key: SharePartitionKey
    leader_epoch: int


class WriteShareState(NamedTuple):
    """Event: write start offset and changed delivery states of a share partition.

    The reply is True or a `ProtocolError`. Start offset -1 leaves the stored one unchanged. Older epochs than stored
    get FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH; an epoch of -1 is not checked. Without a state, or with too many
    batches, the reply is INVALID_REQUEST.
    """

    pending_request: Any
    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[PersisterStateBatch, ...]


class DeleteShareState(NamedTuple):
    """Event: delete a share partition's state; the reply is True, also without a state, or a `ProtocolError`."""

    pending_request: Any
    key: SharePartitionKey


class ReadShareStateSummary(NamedTuple):
    """Event: read a state without fencing; the reply is a `ShareGroupOffset` or a `ProtocolError`.

    A share partition without a state is answered with `UNINITIALIZED_OFFSET`.
    """

    pending_request: Any
    key: SharePartitionKey


class TopicsDeleted(NamedTuple):
    """Event: topics were deleted; the states of their share partitions are deleted."""

    topic_ids: frozenset[bytes]


def _refusal(code: ErrorCode, text: str | None = None) -> ProtocolError:
    return ProtocolError(code, text or code.text)


class ShareStateMachine:
    """State machine of share partition states; ``handle`` turns events into effects, ``replay`` applies records."""

    def __init__(self, settings: ShareCoordinatorSettings, partitions_of: Callable[[bytes], int]) -> None:
        self._settings = settings
        self._topic_partition_count = partitions_of
        """Returns the current number of partitions of a topic by id; 0 if it does not exist."""
        self.states = SharePartitionStates(settings.updates_per_snapshot)
        self.replay = self.states.replay

    def handle(self, now_ms: int, event: Any) -> ShareStateEffects:
        """Return the records, replies and timers with which the coordinator responds to an event.

        ``now_ms``: wall clock. The state changes when the records are replayed.
        """
        match event:
            case ShardLoaded():
                return ShareStateEffects(timers=[self._arm_cold_snapshots(now_ms)])
            case TimerExpired(key=("cold",)):
                fx = ShareStateEffects(timers=[self._arm_cold_snapshots(now_ms)])
                fx.add_records(self._cold_snapshots(now_ms))
                return fx
            case TopicsDeleted():
                fx = ShareStateEffects()
                fx.add_records(
                    share_group_offsets.tombstone_record(key) if key.topic_id in event.topic_ids else None
                    for key in list(self.states.by_key)
                )
                return fx
            case RequestDisconnected() | ShardUnloaded() | WriteResult():
                return ShareStateEffects()
        try:
            return self._handle_request(event, now_ms)
        except ProtocolError as error:
            return ShareStateEffects(replies=[RequestReply(event.pending_request, error.with_traceback(None))])

    def _handle_request(self, event: Any, now_ms: int) -> ShareStateEffects:
        if event.key.partition < 0:
            raise _refusal(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        match event:
            case InitializeShareState():
                return self._initialize(event, now_ms)
            case ReadShareState():
                return self._read(event, now_ms)
            case WriteShareState():
                return self._write(event, now_ms)
            case DeleteShareState():
                return self._delete(event)
            case ReadShareStateSummary():
                self._check_topic(event.key)
                return ShareStateEffects(
                    replies=[
                        RequestReply(
                            event.pending_request,
                            self.states.by_key.get(event.key, share_group_offsets.UNINITIALIZED_OFFSET),
                        )
                    ]
                )
            case _:
                raise AssertionError(event)

    # ------------------------------------------------------------------ checks

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition >= self._topic_partition_count(key.topic_id):
            raise _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _state(self, key: SharePartitionKey, verb: str) -> ShareGroupOffset:
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

    def _initialize(self, event: InitializeShareState, now_ms: int) -> ShareStateEffects:
        self._check_epoch(event.key, event.state_epoch)
        self._check_topic(event.key)
        old = self.states.by_key.get(event.key)
        fresh = ShareGroupOffset(
            0 if old is None else old.snapshot_epoch + 1,
            event.state_epoch,
            0,
            event.start_offset,
            share_group_offsets.UNINITIALIZED if event.start_offset == share_group_offsets.UNINITIALIZED else 0,
            (),
            now_ms,
            now_ms,
        )
        return ShareStateEffects(
            [share_group_offsets.snapshot_record(event.key, fresh)], [RequestReply(event.pending_request, True)]
        )

    def _read(self, event: ReadShareState, now_ms: int) -> ShareStateEffects:
        state = self._state(event.key, "Read")
        self._check_leader(event.key, event.leader_epoch)
        self._check_topic(event.key)
        fx = ShareStateEffects(replies=[RequestReply(event.pending_request, state)])
        if event.leader_epoch not in (-1, self.states.leader_epochs.get(event.key)):
            begun = WriteShareState(
                *(None, event.key, state.state_epoch, event.leader_epoch),
                *(state.start_offset, state.delivery_complete_count, ()),
            )
            fx.records.append(self._update_or_snapshot(begun, state, event.leader_epoch, now_ms))
        return fx

    def _write(self, event: WriteShareState, now_ms: int) -> ShareStateEffects:
        state = self._state(event.key, "Write")
        if len(event.batches) > MAX_WRITTEN_SHARE_BATCHES:
            raise _refusal(ErrorCode.INVALID_REQUEST, f"More than {MAX_WRITTEN_SHARE_BATCHES} batches were given.")
        if len(state.batches) + len(event.batches) > MAX_STORED_SHARE_BATCHES:
            raise _refusal(ErrorCode.INVALID_REQUEST, f"More than {MAX_STORED_SHARE_BATCHES} batches would be stored.")
        self._check_leader(event.key, event.leader_epoch)
        self._check_epoch(event.key, event.state_epoch)
        self._check_topic(event.key)
        return ShareStateEffects(
            [self._update_or_snapshot(event, state, state.leader_epoch, now_ms)],
            [RequestReply(event.pending_request, True)],
        )

    def _update_or_snapshot(
        self, event: WriteShareState, state: ShareGroupOffset, leader_epoch: int, now_ms: int
    ) -> ShareRecord:
        """Return the record of a write: an update or, once enough updates followed the last snapshot, a snapshot.

        ``state``: the stored state, to which the write is applied in a snapshot.
        """
        if not self.states.is_snapshot_due(event.key):
            changed = replace(
                state,
                leader_epoch=leader_epoch,
                start_offset=event.start_offset,
                delivery_complete_count=event.delivery_complete_count,
                batches=tuple(combine_state_batches((), event.batches, event.start_offset)),
            )
            return share_group_offsets.update_record(event.key, changed)
        start = state.start_offset if event.start_offset == share_group_offsets.UNINITIALIZED else event.start_offset
        whole = ShareGroupOffset(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start,
            event.delivery_complete_count,
            tuple(combine_state_batches(state.batches, event.batches, start)),
            now_ms,
            now_ms,
        )
        return share_group_offsets.snapshot_record(event.key, whole)

    def _delete(self, event: DeleteShareState) -> ShareStateEffects:
        self._check_topic(event.key)
        records = [share_group_offsets.tombstone_record(event.key)] if event.key in self.states.by_key else []
        return ShareStateEffects(records, [RequestReply(event.pending_request, True)])

    # ------------------------------------------------------------------ periodic work

    def _arm_cold_snapshots(self, now_ms: int) -> ScheduleTimer:
        return ScheduleTimer(_COLD_SNAPSHOT_TIMER, now_ms + self._settings.cold_snapshot_interval_ms)

    def _cold_snapshots(self, now_ms: int) -> Iterator[ShareRecord | None]:
        """Yield snapshots of share partitions without one for the interval: old records would prevent truncation.

        None is yielded for each other share partition. Nothing is yielded if all snapshots are of this kind already.
        """
        if all(state.create_timestamp_ms != state.write_timestamp_ms for state in self.states.by_key.values()):
            return
        for key, state in list(self.states.by_key.items()):
            if now_ms - state.write_timestamp_ms < self._settings.cold_snapshot_interval_ms:
                yield None
            else:
                yield share_group_offsets.snapshot_record(
                    key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms)
                )
