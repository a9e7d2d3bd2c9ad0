"""Share partition at its leader: loads and writes the state with the persister, and runs the lock timer.

The rules are in `ottla.broker.share_partitions.share_partition`, ``acquisition`` and ``acknowledgement``.

Source: ``SharePartition.java``, ``SharePartitionManager.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.timers import Timers
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.share_partitions import acknowledgement
from ottla.broker.share_partitions.acquisition import AcquiredRange, AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.share_partition import InvalidShareState, SharePartition
from ottla.broker.share_state.persister import Persister
from ottla.broker.share_state.share_group_offsets import UNINITIALIZED, ShareGroupOffset, SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch, merge_adjacent
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.share_partitions.group_config_provider import ShareGroupConfigProvider

logger = logging.getLogger("ottla.share")
WRITTEN = True
"""Reply of an acknowledgement after its state was written."""
_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
)
_FENCED_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_PASSED_THROUGH_ERRORS = (
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class SharePartitionDependencies(NamedTuple):
    """Functions and components of the node that its share partitions use."""

    env: Env
    timers: Timers
    persister: Persister
    group_config: ShareGroupConfigProvider
    start_task: Callable[[Callable[[], Awaitable[None]]], None]
    """Starts a background task."""
    wake_purgatory: Callable[[object], None]
    """Completes the delayed operations of a key, where possible."""
    on_removed: Callable[[SharePartitionLeader], None]
    """Called with a share partition that must be removed from the cache and closed."""
    fail: DiskErrorHandler
    """Called with a disk error of a log."""


def to_consumer_error(error: ProtocolError) -> ProtocolError:
    """Return the error for the consumer's response from an error of the persister.

    COORDINATOR_NOT_AVAILABLE replaces coordinator and network errors, NOT_LEADER_OR_FOLLOWER fenced epochs. Of the
    others, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION and NOT_LEADER_OR_FOLLOWER are kept; the rest becomes
    UNKNOWN_SERVER_ERROR.
    """
    if error.code in _COORDINATOR_ERRORS:
        return ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _FENCED_ERRORS:
        return ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _PASSED_THROUGH_ERRORS:
        return error
    return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


async def _read_state(reading: Awaitable[ShareGroupOffset]) -> ShareGroupOffset:
    """Await a read of the persister and return the state.

    Raises:
        ProtocolError: error for the consumer.
    """
    try:
        return await reading
    except ProtocolError as error:
        raise to_consumer_error(error) from None


class SharePartitionLeader:
    """Share partition that this broker leads: its in-flight records, persistence and acquisition locks.

    Its state is loaded in the background from its creation on; until then no record can be acquired.
    """

    def __init__(
        self, dependencies: SharePartitionDependencies, key: SharePartitionKey, replica: HostedPartition
    ) -> None:
        self._dependencies = dependencies
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self._state_epoch = 0
        self._lock_timer_ms: int | None = None
        """Next time at which expired locks are released, on the clock of `_now_ms`; None without locks."""
        self.share_partition: SharePartition | None = None
        """In-flight records; None until the state is loaded."""
        self.load_error: ProtocolError | None = None
        """Error for consumers because the state could not be loaded; None without one."""
        self.is_closed = False
        dependencies.start_task(partial(self._load, dependencies.persister.read(key, self.leader_epoch)))

    @property
    def purgatory_key(self) -> tuple[str, SharePartitionKey]:
        """Purgatory key of the share fetches that wait for this share partition, in addition to the key of the log."""
        return "share", self.key

    async def _load(self, reading: Awaitable[ShareGroupOffset]) -> None:
        """Load the state from the persister, which fences older leaders, after earlier calls of this broker.

        On an error ``load_error`` is set and the share partition removed. Waiting share fetches are completed.
        """
        try:
            state = await _read_state(reading)
            start = state.start_offset
            if start == UNINITIALIZED:
                start = self._dependencies.group_config.start_offset(self.key.group_id, self.replica)
            limits = self._dependencies.group_config.limits(self.key.group_id)
            self._state_epoch = state.state_epoch
            self.share_partition = SharePartition(start, state.batches, limits)
        except ProtocolError as error:
            self.load_error = error.with_traceback(None)
        except InvalidShareState as error:
            logger.error(
                "Failed to load share partition of group %s, partition %d: %s",
                self.key.group_id,
                self.key.partition,
                error,
            )
            self.load_error = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except OSError as error:
            self._dependencies.fail(error, self.replica.log)
            self.load_error = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.load_error is not None:
            self._dependencies.on_removed(self)
        self._dependencies.wake_purgatory(self.purgatory_key)

    # ------------------------------------------------------------------ acquisition

    def next_fetch_offset(self) -> int | None:
        """Return the offset of the next fetch; None if it is not loaded, is closed, or no record can be acquired."""
        rules = self.share_partition
        if rules is None or self.is_closed:
            return None
        rules.limits = self._dependencies.group_config.limits(self.key.group_id)
        offset = rules.next_fetch_offset()
        return offset if rules.can_acquire() else None

    @property
    def first_new_offset(self) -> int:
        """First offset never acquired; 0 until the state is loaded."""
        return 0 if self.share_partition is None else self.share_partition.first_new_offset

    def acquire_records(self, request: AcquireRequest, fetched: FetchedOffsets) -> list[AcquiredRange]:
        """Acquire records of a read for a member, and start the timer of their acquisition locks; return the ranges.

        The state must be loaded (`next_fetch_offset` is not None).
        """
        assert self.share_partition is not None
        now = self._now_ms()
        out = acquire_records(self.share_partition, request, fetched, now)
        if out:
            self._arm_lock_timer(now + self.share_partition.limits.lock_duration_ms)
        return out

    def update_log_start_offset(self, offset: int) -> None:
        """Archive available records before a new log start offset, and advance the start offset to it.

        No effect if it is not after the start offset, or if the state is not loaded yet.
        """
        if self.share_partition is not None:
            self.share_partition.update_log_start_offset(offset)

    # ------------------------------------------------------------------ acknowledgement and release

    def acknowledge(
        self, member_id: str, batches: Sequence[acknowledgement.ShareAcknowledgementBatch]
    ) -> PendingBrokerRequest:
        """Acknowledge records of a member and start to write their states.

        The returned request completes with `WRITTEN` after the write, or at once if there is nothing to write; or with
        a `ProtocolError`: nothing was acknowledged (not loaded and closed included), or the write failed and the change
        was rolled back. Renewed locks stay renewed in each case.
        """
        pending, rules = PendingBrokerRequest(), self.share_partition
        if rules is None or self.is_closed:
            pending.deliver(ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return pending
        rules.limits = self._dependencies.group_config.limits(self.key.group_id)
        try:
            changes = acknowledgement.acknowledge_records(rules, member_id, batches, self._now_ms())
        except ProtocolError as error:
            pending.deliver(error.with_traceback(None))
            return pending
        self._write(changes, pending)
        return pending

    def release(self, member_id: str) -> None:
        """Release all records acquired by a member, and start to write their states in the background.

        If the write fails, the member has them until their locks expire. No effect if it is not loaded, or is closed.
        """
        if self.share_partition is not None and not self.is_closed:
            self._write(
                acknowledgement.release_acquired_records(self.share_partition, member_id), PendingBrokerRequest()
            )

    def _write(self, changes: acknowledgement.RecordStateChanges, pending: PendingBrokerRequest) -> None:
        if changes.changes:
            self._dependencies.start_task(
                partial(self._await_write, changes, pending, self._start_write(changes.state_batches()))
            )
        else:
            pending.deliver(WRITTEN)

    async def _await_write(
        self, changes: acknowledgement.RecordStateChanges, pending: PendingBrokerRequest, writing: Awaitable[None]
    ) -> None:
        assert self.share_partition is not None
        error = await self._await_persisted(writing)
        acknowledgement.complete_changes(self.share_partition, changes, self._now_ms(), written=error is None)
        if error is not None and not self.is_closed:
            self._arm_next_lock_timer()  # a rolled-back record's lock was ignored while the change was pending
        pending.deliver(WRITTEN if error is None else error)
        self._dependencies.wake_purgatory(self.purgatory_key)

    def _start_write(self, batches: tuple[PersisterStateBatch, ...]) -> Awaitable[None]:
        """Enqueue a write of start offset and state batches at the persister, after all earlier calls; return its wait.

        The order is fixed by this call, not by when the result is awaited.
        """
        rules = self.share_partition
        assert rules is not None
        state = (rules.start_offset, rules.delivery_complete_count, batches)
        return self._dependencies.persister.write(self.key, self._state_epoch, self.leader_epoch, *state)

    async def _await_persisted(self, writing: Awaitable[None]) -> ProtocolError | None:
        """Wait for a write; return None on success, else the error for the consumer.

        The share partition is removed if the group or partition no longer exists, or its epoch is fenced.
        """
        try:
            await writing
        except ProtocolError as error:
            failure = to_consumer_error(error)
            if failure.code in _PASSED_THROUGH_ERRORS:
                self._dependencies.on_removed(self)
            return failure
        return None

    # ------------------------------------------------------------------ locks

    def _now_ms(self) -> int:
        """Return the time of the monotonic clock in ms, in which the ends of acquisition locks are measured."""
        return int(self._dependencies.env.monotonic_ms())

    def _arm_lock_timer(self, end_ms: int) -> None:
        """Set the lock timer to ``end_ms`` (monotonic clock), unless it is set to an earlier time.

        A lock that was released meanwhile causes a check without effect.
        """
        if self._lock_timer_ms is None or end_ms < self._lock_timer_ms:
            self._lock_timer_ms = end_ms
            env = self._dependencies.env
            self._dependencies.timers.arm(
                self.purgatory_key, env.now_ms() + end_ms - self._now_ms(), self._expire_locks
            )

    def _arm_next_lock_timer(self) -> None:
        end = None if self.share_partition is None else acknowledgement.next_lock_expiry_ms(self.share_partition)
        if end is not None:
            self._arm_lock_timer(end)

    def _expire_locks(self) -> None:
        self._lock_timer_ms = None
        if self.share_partition is None or self.is_closed:
            return
        batches = acknowledgement.expire_locks(self.share_partition, self._now_ms())
        self._arm_next_lock_timer()
        if batches:
            self._dependencies.start_task(
                partial(self._persist_and_advance, self._start_write(merge_adjacent(batches)))
            )
            self._dependencies.wake_purgatory(self.purgatory_key)

    async def _persist_and_advance(self, writing: Awaitable[None]) -> None:
        error = await self._await_persisted(writing)
        if error is not None:
            logger.warning(
                "Failed to write state of share group %s after acquisition locks expired: %s", self.key.group_id, error
            )
        assert self.share_partition is not None
        if self.share_partition.advance_start_offset():
            self._dependencies.wake_purgatory(self.purgatory_key)  # more records may be acquired

    def close(self) -> None:
        """Close the share partition: delayed share fetches complete, so that consumers look up the new leader.

        No record is acquired, acknowledged or released any more; the state is not written.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self._dependencies.timers.cancel(self.purgatory_key)
        self._dependencies.wake_purgatory(self.purgatory_key)
