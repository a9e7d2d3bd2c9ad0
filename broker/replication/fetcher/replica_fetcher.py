"""Replica fetcher: sends fetches to one leader over one connection and applies the responses to the logs.

Requests and evaluation of responses are in `fetch_state`. A large response is processed in pieces, so that other tasks
run in between; a removed partition is skipped at once.

Source: ``AbstractFetcherThread.scala``, ``ReplicaFetcherThread.scala``, ``BrokerBlockingSender.scala`` (Kafka 4.3.1).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import trio

from ottla.broker.replication.fetcher.fetch_state import (
    AppendOutcome,
    DivergedOutcome,
    FetchOutcome,
    FollowerFetchState,
    OutOfRangeOutcome,
    PartitionKey,
    compute_truncation,
    split_batches,
)
from ottla.broker.replication.fetcher.leader_endpoint import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetcherDependencies,
    connect_to_leader,
    fetch_leader_offset,
    fetch_version,
)
from ottla.broker.replication.hosted_partition import UNCERTAIN_COMMIT_MS, HostedPartition
from ottla.client.channel import Disconnected
from ottla.env.disk import is_transient
from ottla.env.env import ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState

logger = logging.getLogger("ottla.fetcher")

NEW_PARTITION_WAIT_S = 0.02
NEW_PARTITION_WAIT_EACH_S = 0.0002
"""Wait of a new partition, plus the time for each followed one, before the current long poll is interrupted."""
UNCERTAIN_HIGH_WATERMARK_WAIT_MS = 10
"""Maximum wait of a fetch while clients may wait for the high watermark, whose advance does not complete a fetch."""
FLUSH_RETRY_S = 1.0
"""Retry delay after a flush failed for lack of resources."""


class PendingOutcome(NamedTuple):
    """An outcome with the partition it is about, and the leader epoch under which it was asked for."""

    outcome: FetchOutcome
    replica: HostedPartition
    leader_epoch: int


class ReplicaFetcher:
    """Fetcher of partitions of one leader over one connection."""

    def __init__(self, dependencies: FetcherDependencies, leader_id: int, number: int) -> None:
        self._dependencies = dependencies
        self._leader_id = leader_id
        self._connection = connect_to_leader(dependencies, leader_id, f"broker-{dependencies.node_id}-fetcher-{number}")
        self._fetch_state = FollowerFetchState(dependencies.node_id, dependencies.broker_epoch(), dependencies.limits)
        self._partitions: dict[PartitionKey, HostedPartition] = {}
        self._lagging: set[PartitionKey] = set()
        """Those that lacked something of what is committed when they were last heard of."""
        self._uncertain_until_ms: dict[PartitionKey, float] = {}
        """Those of which clients wait for the new leader's high watermark, and until when."""
        self._unflushed: dict[PartitionKey, bool] = {}
        """Those not asked for before what they have is on the disk, and whether somebody sees to that."""
        self._wakeup = trio.Event()
        """Set when there may be something to ask for that there was not."""
        self._request_scope: trio.CancelScope | None = None
        self._run_scope: trio.CancelScope | None = None
        self._stopped = False
        self._is_unreachable_logged = False
        """True if it was told that the leader cannot be reached."""

    def __len__(self) -> int:
        return len(self._partitions)

    def add_partition(self, replica: HostedPartition, leader_epoch: int) -> None:
        """Begin with a partition, or go on with it under another epoch."""
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
        """Remove a partition."""
        key = (replica.topic_id, replica.partition)
        if self._partitions.get(key) is replica:
            del self._partitions[key]
            self._lagging.discard(key)
            self._uncertain_until_ms.pop(key, None)
            self._unflushed.pop(key, None)
            self._fetch_state.remove_partition(key)

    def stop(self) -> None:
        """End `run`, now or as soon as it begins."""
        self._stopped = True
        if self._run_scope is not None:
            self._run_scope.cancel()

    async def run(self) -> None:
        """Follow, until stopped. An attempt that failed may be followed by another."""
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
        """Send one request and process its outcomes, or wait until there are partitions to fetch."""
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
        """Reset the event once the request contains all changes; `_interrupt_long_poll` may wait for the event."""
        if self._wakeup.is_set():
            self._wakeup = trio.Event()

    def _excluded_partitions(self) -> frozenset[PartitionKey]:
        """Return the unsynced partitions, and the lagging throttled ones above the quota."""
        if not self._lagging or not self._dependencies.is_quota_exceeded():
            return frozenset(self._unflushed)
        throttled = (key for key in self._lagging if self._dependencies.is_throttled(self._partitions[key]))
        return frozenset(throttled).union(self._unflushed)

    def _exclude_until_flushed(self, key: PartitionKey, replica: HostedPartition) -> None:
        """Exclude a partition until it is flushed: its fetch offset promises durability of earlier records."""
        log = replica.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._unflushed[key] = False
        else:
            self._unflushed.pop(key, None)

    def _has_uncertain_high_watermark(self, now_ms: float) -> bool:
        """Return True if clients may wait for the leader's next high watermark."""
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
        """Send a Fetch; return None without a response."""
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
        """Break off a request that waits for records while there is a partition it does not name."""
        while True:
            await self._wakeup.wait()
            asking = self._request_scope
            wait_s = max(NEW_PARTITION_WAIT_S, NEW_PARTITION_WAIT_EACH_S * len(self._partitions))
            await self._dependencies.env.sleep(wait_s)
            if asking is not None and asking is self._request_scope and self._wakeup.is_set():
                asking.cancel()

    def _on_connection_failure(self, error: Exception) -> None:
        """Delay all partitions after a failed connection. Logged once until the next response."""
        if not self._is_unreachable_logged:
            logger.warning("Error in response for fetch request to leader %d, retrying: %s", self._leader_id, error)
        self._is_unreachable_logged = True
        self._connection.close()
        self._fetch_state.on_connection_failure(self._dependencies.env.monotonic_ms())

    def _is_current(self, taken: PendingOutcome) -> bool:
        """Return whether the partition still follows this leader as it did when it was asked for."""
        replica = taken.replica
        return (
            self._partitions.get(taken.outcome.key) is replica
            and replica.leader_epoch == taken.leader_epoch
            and not replica.log.closed
        )

    def _process_outcome(self, taken: PendingOutcome, nursery: trio.Nursery) -> Job[None]:
        """Process one outcome; errors affect its partition only.

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
                case OutOfRangeOutcome():
                    if (offset := (yield self._resolve_out_of_range(taken))) is not None:
                        nursery.start_soon(self._truncate_diverged, taken, offset)
                        return
        except ProtocolError as error:
            text = "Error while processing data for partition %s, from leader %d: %s"
            logger.error(text, log.describe(), self._leader_id, error)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._fetch_state.mark_failed(key)
            else:
                self._delay_partition(taken)
            return
        except Disconnected:
            raise
        except OSError as error:
            self._on_disk_error(taken, error)
            return
        if self._is_current(taken):
            self._update_log_state(key, replica)

    def _update_log_state(self, key: PartitionKey, replica: HostedPartition) -> None:
        log = replica.log
        self._fetch_state.update_log_state(key, log.log_end_offset, log.epochs.latest_epoch(), log.log_start_offset)

    def _delay_partition(self, taken: PendingOutcome) -> None:
        """Ask again in a while, from where the log ends: some of the answer may be in it."""
        key = taken.outcome.key
        if self._is_current(taken):
            self._exclude_until_flushed(key, taken.replica)
            self._update_log_state(key, taken.replica)
        self._fetch_state.delay(key, self._dependencies.env.monotonic_ms())

    def _on_disk_error(self, taken: PendingOutcome, error: OSError) -> None:
        """Handle a disk error."""
        if is_transient(error):
            self._delay_partition(taken)
        else:
            self._fetch_state.mark_failed(taken.outcome.key)
        self._dependencies.fail(error, taken.replica.log)

    def _append(self, taken: PendingOutcome, outcome: AppendOutcome) -> Job[bool]:
        """Append the leader's records and offsets; return True if they must be synced before the next fetch.

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
        """Flush after ``flush.messages`` records: the next fetch offset promises durability to the leader."""
        log = None
        while log is not taken.replica.log and not taken.replica.log.closed:  # it may have moved to another directory
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
        """Cut a log, while others are followed."""
        try:
            await self._truncate(taken, offset)
        except OSError as error:
            self._on_disk_error(taken, error)
            return
        if self._is_current(taken):
            self._update_log_state(taken.outcome.key, taken.replica)
            self._wakeup.set()

    async def _truncate(self, taken: PendingOutcome, offset: int) -> None:
        """Truncate a following log, which no other task writes; its producer state is computed first, in steps."""
        log, producers = taken.replica.log, None
        if log.producers.producers or log.producers.last_txn_end_offset >= offset:
            producers = await run_in_background(self._dependencies.env, log.producer_state_below_job(offset))
            if not self._is_current(taken) or taken.replica.log is not log:
                return
        if offset < log.high_watermark:
            logger.warning("Truncating %s to offset %d below high watermark %d", log.label, offset, log.high_watermark)
        log.truncate_to(offset, self._dependencies.env.now_ms(), producers)
        taken.replica.notify_waiters()

    async def _resolve_out_of_range(self, taken: PendingOutcome) -> int | None:
        """Resolve an offset out of the leader's range: return the new end, or start at the leader's log start (R-322).

        Raises:
            ProtocolError: error response; OSError, WireError: no response, or the disk failed.
        """
        replica = taken.replica
        where = replica, taken.leader_epoch
        end = await fetch_leader_offset(self._connection, self._dependencies, *where, LATEST_TIMESTAMP)
        if self._is_current(taken) and end < replica.log.log_end_offset:
            return end
        start = await fetch_leader_offset(self._connection, self._dependencies, *where, EARLIEST_TIMESTAMP)
        if self._is_current(taken) and start > replica.log.log_end_offset:
            logger.warning("Truncate fully and start at offset %d of the leader: %s", start, replica.log.label)
            replica.log.truncate_fully_and_start_at(start, self._dependencies.env.now_ms())
            replica.notify_waiters()
        return None
