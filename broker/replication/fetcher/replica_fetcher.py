"""Replica fetcher: sends fetches to one leader over one connection and applies the responses to the logs.

Requests and evaluation of responses are in `fetch_state`. A large response is processed in chunks, so that other tasks
run in between; a removed partition is skipped at once.

Source: ``AbstractFetcherThread.scala``, ``ReplicaFetcherThread.scala``, ``BrokerBlockingSender.scala`` (Kafka 4.3.1).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.broker.replication.fetcher.fetch_offset_reset import log_reset_error, reset_fetch_offset
from ottla.broker.replication.fetcher.fetch_state import (
    AppendOutcome,
    DivergedOutcome,
    FollowerFetchState,
    OffsetMovedOutcome,
    OutOfRangeOutcome,
    PartitionKey,
    compute_truncation,
)
from ottla.broker.replication.fetcher.fetched_batches import split_batches
from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies, connect_to_leader, fetch_version
from ottla.broker.replication.fetcher.pending_outcome import PendingOutcome
from ottla.broker.replication.hosted_partition import UNCERTAIN_COMMIT_MS, HostedPartition
from ottla.client.channel import Disconnected
from ottla.env.disk import is_transient
from ottla.env.env import ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from ottla.broker.replication.fetcher.tier_state_machine import TierStart

logger = logging.getLogger("ottla.fetcher")

NEW_PARTITION_WAIT_S = 0.02
NEW_PARTITION_WAIT_EACH_S = 0.0002
"""Delay per followed partition, added to `NEW_PARTITION_WAIT_S`, before a new partition interrupts a long poll."""
UNCERTAIN_HIGH_WATERMARK_WAIT_MS = 10
"""Maximum wait of a Fetch while clients may wait for the high watermark: its advance alone does not complete it."""
FLUSH_RETRY_S = 1.0
"""Retry delay after a flush failed for lack of resources (descriptors, memory)."""


class ReplicaFetcher:
    """Fetcher task for some partitions of one leader, with one connection and one Fetch in flight."""

    def __init__(self, dependencies: FetcherDependencies, leader_id: int, number: int) -> None:
        self._dependencies = dependencies
        self._leader_id = leader_id
        self._connection = connect_to_leader(dependencies, leader_id, f"broker-{dependencies.node_id}-fetcher-{number}")
        self._fetch_state = FollowerFetchState(dependencies.node_id, dependencies.broker_epoch(), dependencies.limits)
        self._partitions: dict[PartitionKey, HostedPartition] = {}
        self._lagging: set[PartitionKey] = set()
        """Partitions below the leader's high watermark by the last response."""
        self._uncertain_until_ms: dict[PartitionKey, float] = {}
        """Monotonic time until which clients may wait for the new leader's high watermark, by partition."""
        self._unflushed: dict[PartitionKey, bool] = {}
        """Partitions excluded from fetching until their log is flushed; True once a flush task is started."""
        self._wakeup = trio.Event()
        """Set when partitions may be ready that the current request does not contain."""
        self._request_scope: trio.CancelScope | None = None
        self._run_scope: trio.CancelScope | None = None
        self._stopped = False
        self._is_unreachable_logged = False
        """True if it was logged that the leader cannot be reached."""

    def __len__(self) -> int:
        return len(self._partitions)

    def add_partition(self, replica: HostedPartition, leader_epoch: int) -> None:
        """Start to fetch a partition, or continue in another leader epoch; interrupt a Fetch that waits without it."""
        key, log = (replica.topic_id, replica.partition), replica.log
        self._partitions[key] = replica
        self._lagging.add(key)
        if replica.has_uncertain_records:
            self._uncertain_until_ms[key] = self._dependencies.env.monotonic_ms() + UNCERTAIN_COMMIT_MS
        self._fetch_state.add_partition(
            key, leader_epoch, log.log_end_offset, log.epochs.latest_epoch(), log.log_start_offset
        )
        self._exclude_until_flushed(key, replica)
        self._wakeup.set()

    def remove_partition(self, replica: HostedPartition) -> None:
        """Stop fetching a partition and drop its fetch state; its row of a response in flight is ignored."""
        key = (replica.topic_id, replica.partition)
        if self._partitions.get(key) is replica:
            del self._partitions[key]
            self._lagging.discard(key)
            self._uncertain_until_ms.pop(key, None)
            self._unflushed.pop(key, None)
            self._fetch_state.remove_partition(key)

    def stop(self) -> None:
        """Stop the fetcher: cancel `run`, now or when it starts."""
        self._stopped = True
        if self._run_scope is not None:
            self._run_scope.cancel()

    async def run(self) -> None:
        """Fetch until cancelled or `stop` is called; may be started again after a failure, but not after `stop`."""
        with trio.CancelScope() as self._run_scope:
            if self._stopped:
                return
            self._unflushed.clear()
            for key, replica in self._partitions.items():
                self._exclude_until_flushed(key, replica)
                self._update_log_state(key, replica)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._interrupt_long_poll)
                    while True:
                        await self._fetch_once(nursery)
            finally:
                self._connection.close()

    async def _fetch_once(self, nursery: trio.Nursery) -> None:
        """Send one Fetch and apply its response to the logs, or wait until there are partitions to fetch."""
        env, following = self._dependencies.env, self._fetch_state
        now = env.monotonic_ms()
        following.broker_epoch = self._dependencies.broker_epoch()
        for key in [key for key, seen_to in self._unflushed.items() if not seen_to]:
            self._unflushed[key] = True
            replica = self._partitions[key]
            nursery.start_soon(
                self._flush, PendingOutcome(AppendOutcome(key, b"", 0, 0), replica, replica.leader_epoch)
            )
        following.exclude(self._excluded_partitions())
        request = following.build_fetch(now)
        if request is None:
            with env.timeout(max(following.next_fetch_ms(now) - now, 1) / 1000):
                await self._wakeup.wait()
            self._clear_wakeup()
            return
        if self._uncertain_until_ms and self._has_uncertain_high_watermark(now):
            request.max_wait_ms = min(request.max_wait_ms, UNCERTAIN_HIGH_WATERMARK_WAIT_MS)
        answer = await self._send_fetch(request)
        if answer is None:
            return
        await run_in_background(env, self._process_outcomes(answer, nursery))

    def _process_outcomes(self, answer: FetchResponse, nursery: trio.Nursery) -> Job[None]:
        for taken in self._process_response(answer):
            try:
                yield from self._process_outcome(taken, nursery)
            except (Disconnected, WireError) as error:  # during the request to the leader
                self._on_connection_failure(error)
                self._fetch_state.delay(taken.outcome.key, self._dependencies.env.monotonic_ms())
            yield None

    def _clear_wakeup(self) -> None:
        """Clear the wake-up event, before a request that contains all changes; later changes set it again."""
        if self._wakeup.is_set():
            self._wakeup = trio.Event()

    def _excluded_partitions(self) -> frozenset[PartitionKey]:
        """Return the partitions not to fetch: unflushed ones, and lagging throttled ones above the quota."""
        if not self._lagging or not self._dependencies.is_quota_exceeded():
            return frozenset(self._unflushed)
        throttled = (key for key in self._lagging if self._dependencies.is_throttled(self._partitions[key]))
        return frozenset(throttled).union(self._unflushed)

    def _exclude_until_flushed(self, key: PartitionKey, replica: HostedPartition) -> None:
        """Exclude a partition until it is flushed if it has ``flush.messages`` unflushed records; else include it."""
        log = replica.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._unflushed[key] = False
        else:
            self._unflushed.pop(key, None)

    def _has_uncertain_high_watermark(self, now_ms: float) -> bool:
        """Return True if clients may wait for the high watermark of a partition that this node led before."""
        for key in [
            k
            for k, t in self._uncertain_until_ms.items()
            if t <= now_ms or not self._partitions[k].has_uncertain_records
        ]:
            del self._uncertain_until_ms[key]
        return bool(self._uncertain_until_ms)

    def _process_response(self, answer: FetchResponse) -> list[PendingOutcome]:
        outcomes = self._fetch_state.process_response(answer, self._dependencies.env.monotonic_ms())
        found = ((outcome, self._partitions[outcome.key]) for outcome in outcomes)
        return [PendingOutcome(outcome, replica, replica.leader_epoch) for outcome, replica in found]

    async def _send_fetch(self, request: FetchRequest) -> FetchResponse | None:
        """Send a Fetch and return its response; None if it failed or was interrupted."""
        version = fetch_version(self._dependencies.metadata_version())
        if version < 15:
            request.replica_id, request.replica_state = self._dependencies.node_id, ReplicaState()
        self._clear_wakeup()
        with trio.CancelScope() as self._request_scope:
            try:
                answer: FetchResponse = await self._connection.call(request, version)
                self._is_unreachable_logged = False
                return answer
            except (OSError, WireError) as error:
                self._on_connection_failure(error)
                return None
            finally:
                self._request_scope = None
        self._fetch_state.reset_session()  # interrupted: there are changes to send
        return None

    async def _interrupt_long_poll(self) -> None:
        """Interrupt each long-polling Fetch that lacks a ready partition, until cancelled."""
        while True:
            await self._wakeup.wait()
            asking = self._request_scope
            wait_s = max(NEW_PARTITION_WAIT_S, NEW_PARTITION_WAIT_EACH_S * len(self._partitions))
            await self._dependencies.env.sleep(wait_s)
            if asking is not None and asking is self._request_scope and self._wakeup.is_set():
                asking.cancel()

    def _on_connection_failure(self, error: Exception) -> None:
        """Close the connection and back off all partitions; log the error, but only the first one since a response."""
        if not self._is_unreachable_logged:
            logger.warning("Error in response for fetch request to leader %d, retrying: %s", self._leader_id, error)
        self._is_unreachable_logged = True
        self._connection.close()
        self._fetch_state.on_connection_failure(self._dependencies.env.monotonic_ms())

    def _is_current(self, taken: PendingOutcome) -> bool:
        """Return True if the partition is still fetched by this fetcher in the leader epoch of the request."""
        replica = taken.replica
        return (
            self._partitions.get(taken.outcome.key) is replica
            and replica.leader_epoch == taken.leader_epoch
            and not replica.log.closed
        )

    def _process_outcome(self, taken: PendingOutcome, nursery: trio.Nursery) -> Job[None]:
        """Apply an outcome to its log, as a job, or start a task in ``nursery`` for it; handle errors of the log.

        Raises:
            Disconnected, WireError: a further request to the leader failed.
        """
        if not self._is_current(taken):
            return
        outcome, replica, _ = taken
        log, key = replica.log, outcome.key
        try:
            match outcome:
                case AppendOutcome():
                    if (yield from self._append(taken, outcome)):
                        nursery.start_soon(self._flush, taken)
                        return
                case DivergedOutcome(_, epoch, end):
                    own = log.epochs.end_offset_for(epoch, log.log_end_offset)
                    truncation = compute_truncation(epoch, end, own, log.log_end_offset)
                    nursery.start_soon(self._truncate_diverged, taken, truncation.offset)
                    return
                case OutOfRangeOutcome() | OffsetMovedOutcome():
                    reset = yield reset_fetch_offset(self._connection, self._dependencies, taken, self._is_current)
                    if isinstance(reset, int):
                        nursery.start_soon(self._truncate_diverged, taken, reset)
                        return
                    if reset is not None:
                        nursery.start_soon(self._build_remote_log_aux_state, taken, reset)
                        return
        except ProtocolError as error:
            self._on_protocol_error(taken, error)
            return
        except Disconnected:
            raise
        except OSError as error:
            self._on_disk_error(taken, error)
            return
        if self._is_current(taken):
            self._update_log_state(key, replica)

    def _on_protocol_error(self, taken: PendingOutcome, error: ProtocolError) -> None:
        """Log an error of an outcome; back off its partition, or mark it failed after a fatal error."""
        if isinstance(taken.outcome, AppendOutcome):
            text = "Error while processing data for partition %s, from leader %d: %s"
            logger.error(text, taken.replica.log.describe(), self._leader_id, error)
            is_fatal = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log_reset_error(taken, error)
            is_fatal = error.code is ErrorCode.FENCED_LEADER_EPOCH and self._is_current(taken)
        if is_fatal:
            self._fetch_state.mark_failed(taken.outcome.key)
        else:
            self._delay_partition(taken)

    def _update_log_state(self, key: PartitionKey, replica: HostedPartition) -> None:
        log = replica.log
        self._fetch_state.update_log_state(key, log.log_end_offset, log.epochs.latest_epoch(), log.log_start_offset)

    def _delay_partition(self, taken: PendingOutcome) -> None:
        """Back off a partition and set its fetch offset to its log end, as part of the response may be in the log."""
        key = taken.outcome.key
        if self._is_current(taken):
            self._exclude_until_flushed(key, taken.replica)
            self._update_log_state(key, taken.replica)
        self._fetch_state.delay(key, self._dependencies.env.monotonic_ms())

    def _on_disk_error(self, taken: PendingOutcome, error: OSError) -> None:
        """Report a disk error; back off the partition if the error is transient, otherwise mark it failed."""
        if is_transient(error):
            self._delay_partition(taken)
        else:
            self._fetch_state.mark_failed(taken.outcome.key)
        self._dependencies.fail(error, taken.replica.log)

    def _append(self, taken: PendingOutcome, outcome: AppendOutcome) -> Job[bool]:
        """Append the leader's records and update the offsets, as a job; True if a flush must precede the next fetch.

        Stop and return False if the partition changes meanwhile.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE; OSError: the disk failed.
        """
        replica, due = taken.replica, False
        if outcome.records and self._dependencies.is_throttled(replica):
            self._dependencies.record_throttled_bytes(len(outcome.records))
        for piece in split_batches(outcome.records or b"", taken.leader_epoch):
            due = replica.append_as_follower(piece, self._dependencies.env.now_ms())
            yield None
            if not self._is_current(taken):
                return False
        replica.update_leader_offsets(outcome.high_watermark, outcome.log_start_offset)
        if replica.lag:
            self._lagging.add(outcome.key)
        else:
            self._lagging.discard(outcome.key)
        return due

    async def _flush(self, taken: PendingOutcome) -> None:
        """Flush a log that has ``flush.messages`` unflushed records and allow its next fetch; the body of a task."""
        log = None
        while log is not taken.replica.log and not taken.replica.log.closed:  # a future log may replace it meanwhile
            log = taken.replica.log
            try:
                job = log.start_flush(log.log_end_offset)
                await self._dependencies.env.in_thread(job, ThreadPool.SYNC)
                log.complete_flush(job)
            except OSError as error:
                if log is taken.replica.log and not is_transient(error):
                    self._on_disk_error(taken, error)
                    return
                self._dependencies.fail(error, log)  # the disk of the former directory, or a transient error
                if log is taken.replica.log:
                    await self._dependencies.env.sleep(FLUSH_RETRY_S)
                    log = None
        if self._is_current(taken):
            self._unflushed.pop(taken.outcome.key, None)
            self._update_log_state(taken.outcome.key, taken.replica)
            self._wakeup.set()

    async def _truncate_diverged(self, taken: PendingOutcome, offset: int) -> None:
        """Truncate a log to ``offset``, and unless the disk fails fetch its partition again; the body of a task."""
        try:
            await self._truncate(taken, offset)
        except OSError as error:
            self._on_disk_error(taken, error)
            return
        self._continue_partition(taken)

    def _continue_partition(self, taken: PendingOutcome) -> None:
        """Fetch a partition again after a task changed its log, unless the partition changed meanwhile."""
        if self._is_current(taken):
            self._update_log_state(taken.outcome.key, taken.replica)
            self._wakeup.set()

    async def _truncate(self, taken: PendingOutcome, offset: int) -> None:
        """Truncate a log to ``offset``, unless its partition changes while a needed producer state is computed."""
        log, producers = taken.replica.log, None
        if log.producers.producers or log.producers.last_txn_end_offset >= offset:
            producers = await run_in_background(self._dependencies.env, log.producer_state_below_job(offset))
            if not self._is_current(taken) or taken.replica.log is not log:
                return
        if offset < log.high_watermark:
            logger.warning("Truncating %s to offset %d below high watermark %d", log.label, offset, log.high_watermark)
        log.truncate_to(offset, self._dependencies.env.now_ms(), producers)
        taken.replica.notify_waiters()

    async def _build_remote_log_aux_state(self, taken: PendingOutcome, start: TierStart) -> None:
        """Restart a log above records in the remote store; the body of a task that handles errors of store and disk."""
        # lazy: 9.4 ms, 295 kB
        from ottla.broker.replication.fetcher.tier_state_machine import build_remote_log_aux_state
        from ottla.broker.storage.tiered.remote_storage import RemoteStorageError, RetriableRemoteStorageError

        try:
            await build_remote_log_aux_state(self._dependencies, taken, start, self._is_current)
        except RemoteStorageError as error:
            log_reset_error(taken, error, is_retriable=isinstance(error, RetriableRemoteStorageError))
            self._delay_partition(taken)
            return
        except OSError as error:
            self._on_disk_error(taken, error)
            return
        self._continue_partition(taken)
