"""Runtime of the group, transaction and share coordinators.

The state of a coordinator is the replay of the partitions of an internal topic. There is a shard for each partition
that this node leads; after an election its log is replayed in time slices, one shard after the other; after a
resignation all its pending requests fail with NOT_COORDINATOR.

Source: ``CoordinatorRuntime.java``, ``CoordinatorLoaderImpl.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import trio

from ottla.broker.coordinator import errors
from ottla.broker.coordinator.errors import CoordinatorStateError, wrap_state_errors
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.record_batches import MAX_BATCH_BYTES, Serde, replay_batch
from ottla.broker.coordinator.shard import CoordinatorState, Shard, ShardDependencies
from ottla.broker.coordinator.timers import Timers
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.controller.metadata.image import MetadataImage
from ottla.env.disk import is_transient
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import BatchHeader

R = TypeVar("R")
logger = logging.getLogger("ottla.coordinator")

READ_BYTES = 65_536
"""Bytes of a log that are read at a time, unless a batch is larger."""
REPLAY_SLICE_BYTES = 32_768
"""Work of a replay before it yields to the event loop: bytes of records, plus the cost of each record and batch."""
RECORD_COST_BYTES = 64
BATCH_COST_BYTES = 128
READ_RETRY_S = 0.2
MIN_RELOAD_BACKOFF_MS = 1_000
MAX_RELOAD_BACKOFF_MS = 60_000
"""A failed shard is reloaded after a back-off that doubles with each failure, from the minimum to this maximum."""
RELOAD_BACKOFF_RESET_MS = 600_000
"""Time without a failure after which the reload back-off of a shard starts at the minimum again."""
MAX_CACHED_KEY_CHARS = 64
"""Longest key whose partition is cached: it bounds the memory of the cache, which has a fixed number of entries."""


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_for_key(key: str, partitions: int) -> int:
    """Return the partition (from 0) that stores a key: its Java hash code modulo ``partitions``.

    Keys are group ids, transactional ids, and `as_coordinator_key` of share partitions. The absolute value of the hash
    code is used; as in ``Utils.abs``, that of the minimum int32 is 0.
    """
    return (
        _cached_partition_for_key(key, partitions)
        if len(key) <= MAX_CACHED_KEY_CHARS
        else _partition_for_key(key, partitions)
    )


def _partition_for_key(key: str, partitions: int) -> int:
    value = java_string_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions


_cached_partition_for_key = lru_cache(maxsize=8192)(_partition_for_key)


class CoordinatorRuntime(Generic[R]):
    """Runtime of a coordinator: loads and unloads the shards of one internal topic, and submits events to them.

    There is a shard for each partition that this node leads. `run` must be running.
    """

    def __init__(
        self,
        env: Env,
        timers: Timers,
        fail: DiskErrorHandler,
        topic: str,
        image: Callable[[], MetadataImage],
        default_partitions: int,
        machine_of: Callable[[], StateMachine[R]],
        serde: Serde[R],
        write_timeout_ms: int,
        *,
        acks_all: bool = False,
    ) -> None:
        """Initialize without shards.

        Args:
            env: environment (clock, disk, network).
            timers: timers of the node.
            fail: called with a disk error of a log.
            topic: name of the internal topic.
            image: returns the newest metadata image of this broker.
            default_partitions: number of partitions of the topic while it does not exist.
            machine_of: returns a new state machine for a shard.
            serde: encoder and decoder of the records.
            write_timeout_ms: time within which an appended record must be committed, before its request fails.
            acks_all: appends fail with NOT_ENOUGH_REPLICAS while the ISR is smaller than `min.insync.replicas`.
        """
        self._env = env
        self._timers = timers
        self._fail = fail
        self._topic = topic
        self._latest_image = image
        self._default_partitions = default_partitions
        self._machine_of = machine_of
        self._serde = serde
        self._dependencies = ShardDependencies(env, timers, fail, self._start_task, write_timeout_ms, acks_all)
        self._shards: dict[int, Shard[R]] = {}
        self._to_load: deque[Shard[R]] = deque()
        self._reloads: dict[int, tuple[int, float]] = {}
        """By partition: last reload back-off in ms, and time of the last failure on the monotonic clock (ms)."""
        self._load_requested = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._tasks_before_run: list[Callable[[], Awaitable[None]]] = []

    # ------------------------------------------------------------------ leadership

    def on_election(self, replica: HostedPartition) -> None:
        """Create the shard of a partition that this node now leads; ignore partitions of other topics.

        The shard of an empty log is active at once; else it is queued for loading. A shard that is loading or active
        since an earlier leader epoch of this node is retained.
        """
        if replica.topic != self._topic:
            return
        old = self._shards.get(replica.partition)
        if old is not None:
            if old.replica is replica and old.state in (CoordinatorState.LOADING, CoordinatorState.ACTIVE):
                old.on_high_watermark_updated()  # the ISR may have shrunk, which advances the high watermark
                return
            old.unload()
        self._start_shard(replica)

    def _start_shard(self, replica: HostedPartition) -> None:
        again, failed = partial(self._restart_shard, replica), partial(self._reload_later, replica)
        shard = Shard(self._dependencies, replica, self._machine_of(), self._serde, again, failed)
        self._shards[replica.partition] = shard
        end = replica.log.log_end_offset
        if end == replica.log.log_start_offset:
            for _ in shard.activate(end):
                raise AssertionError("an empty log needs no recovery")
        else:
            self._to_load.append(shard)
            self._load_requested.set()

    def _restart_shard(self, replica: HostedPartition) -> None:
        self._shards[replica.partition].unload()
        self._start_shard(replica)

    def _reload_later(self, replica: HostedPartition) -> None:
        """Schedule the reload of a failed shard after a back-off, because the failure may concern only a few keys."""
        number = replica.partition
        now_ms = self._env.monotonic_ms()
        last_ms, failed_ms = self._reloads.get(number, (0, now_ms))
        fails_again = last_ms > 0 and now_ms - failed_ms < RELOAD_BACKOFF_RESET_MS
        pause_ms = min(2 * last_ms, MAX_RELOAD_BACKOFF_MS) if fails_again else MIN_RELOAD_BACKOFF_MS
        self._reloads[number] = pause_ms, now_ms
        at_ms, failed = self._env.now_ms() + pause_ms, self._shards.get(number)

        def reload() -> None:
            if failed is not None and self._shards.get(number) is failed:
                self._restart_shard(replica)

        self._timers.arm(("reload", self._topic, number), at_ms, reload)

    def on_resignation(self, replica: HostedPartition) -> None:
        """Unload the shard of a partition that this node no longer leads.

        Its pending requests fail with NOT_COORDINATOR. A partition without a shard is ignored.
        """
        shard = self._shards.get(replica.partition)
        if shard is not None and shard.replica is replica:
            del self._shards[replica.partition]
            self._reloads.pop(replica.partition, None)
            shard.unload()

    def on_high_watermark_updated(self, replica: HostedPartition) -> None:
        """Send the replies of a partition's shard that wait for records now committed; ignore one without a shard."""
        shard = self._shards.get(replica.partition)
        if shard is not None and shard.replica is replica:
            shard.on_high_watermark_updated()

    # ------------------------------------------------------------------ requests

    def partition_for(self, key: str) -> int:
        """Return the partition (from 0) of the internal topic that holds a key, such as a group id."""
        topic = self._latest_image().topics.get(self._topic)
        return partition_for_key(key, self._default_partitions if topic is None else len(topic.partitions))

    def shard_for(self, key: str) -> Shard[R]:
        """Return the active shard of a key. Raises ProtocolError as `shard` does."""
        return self.shard(self.partition_for(key))

    def shard(self, partition: int) -> Shard[R]:
        """Return the active shard of a partition.

        Raises:
            ProtocolError: NOT_COORDINATOR: this node does not lead the partition, or the shard has failed;
                COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self._shards.get(partition)
        if shard is None or not self.is_served(shard):
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if shard.state is CoordinatorState.LOADING:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def is_served(self, shard: Shard[R]) -> bool:
        """Return True if this node leads the shard's partition and the shard is loading or active."""
        return shard.replica.is_leader and shard.state not in (CoordinatorState.FAILED, CoordinatorState.CLOSED)

    def submit(self, key: str, event_of: Callable[[PendingBrokerRequest], Any]) -> PendingBrokerRequest:
        """Submit the event that ``event_of`` builds from a new pending request to a key's shard; return the request.

        The request completes with the reply of the state machine, at once or later.
        On rejection (NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS) the request completes with a `ProtocolError`.
        """
        return self.submit_to_partition(self.partition_for(key), event_of)

    def submit_to_partition(
        self, partition: int, event_of: Callable[[PendingBrokerRequest], Any]
    ) -> PendingBrokerRequest:
        """Submit an event to the shard of a partition, as `submit` does."""
        pending = PendingBrokerRequest()
        try:
            self.shard(partition).enqueue(event_of(pending), pending)
        except ProtocolError as error:
            pending.deliver(error.with_traceback(None))  # its traceback would reference this frame and the request
        return pending

    def submit_to_all(self, event: Any) -> None:
        """Submit an event to every loading or active shard; a loading one processes it after loading."""
        for shard in list(self._shards.values()):
            if shard.state in (CoordinatorState.LOADING, CoordinatorState.ACTIVE):
                shard.enqueue(event)

    def on_disconnect(self, key: str, pending: PendingBrokerRequest) -> None:
        """Submit to a key's active shard that the client of ``pending`` has disconnected; ignored if it is answered."""
        shard = self._shards.get(self.partition_for(key))
        if shard is not None:
            shard.on_disconnect(key, pending)

    def __iter__(self) -> Iterator[Shard[R]]:
        """Iterate over all shards in order of their partitions."""
        return iter([self._shards[number] for number in sorted(self._shards)])

    def active_shards(self) -> Iterator[Shard[R]]:
        """Yield every active shard in order of their partitions; failed ones are skipped.

        Raises:
            ProtocolError: COORDINATOR_LOAD_IN_PROGRESS: the iteration has reached a shard that is still loading.
        """
        for shard in self:
            if shard.state is CoordinatorState.LOADING:
                raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if shard.state is CoordinatorState.ACTIVE:
                yield shard

    # ------------------------------------------------------------------ loading and background work

    def _start_task(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is None:
            self._tasks_before_run.append(work)
        else:
            self._nursery.start_soon(work)

    async def run(self) -> None:
        """Load shards and run their background work (continuations, queued events) until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while self._tasks_before_run:
                nursery.start_soon(self._tasks_before_run.pop(0))
            while True:
                while self._to_load:
                    await self._load(self._to_load.popleft())
                self._load_requested = trio.Event()
                await self._load_requested.wait()

    async def _load(self, shard: Shard[R]) -> None:
        """Replay the log of a shard and activate it; stop if the shard is unloaded meanwhile.

        A malformed record, an exception of the state machine or a persistent disk error fails the shard
        (NOT_COORDINATOR); a transient disk error is retried.
        """
        at = shard.replica.log.log_start_offset
        while shard.state is CoordinatorState.LOADING:
            try:
                batches = self._read(shard, at)
                if not batches:
                    await self._activate(shard, shard.replica.log.log_end_offset)
                    return
                await self._replay(shard, batches)
                await trio.lowlevel.checkpoint()
                at = batches[-1][0].next_offset
            except (WireError, ProtocolError) as error:
                logger.error(
                    "Failed to load metadata from %s-%d: %s; its coordinator is not available",
                    *self._name(shard),
                    error,
                )
                shard.fail()
            except CoordinatorStateError as error:
                errors.report_failure(error, *self._name(shard), "Load")
                shard.fail()
            except OSError as error:
                if shard.state is not CoordinatorState.LOADING:
                    return
                self._fail(error, shard.replica.log)
                if is_transient(error):
                    await self._env.sleep(READ_RETRY_S)
                elif shard.state is CoordinatorState.LOADING:
                    shard.fail()

    async def _activate(self, shard: Shard[R], end: int) -> None:
        for _ in shard.activate(end):
            await trio.lowlevel.checkpoint()
            if shard.state is not CoordinatorState.LOADING:
                return

    def _name(self, shard: Shard[R]) -> tuple[str, int]:
        return shard.replica.topic, shard.replica.partition

    def _read(self, shard: Shard[R], at: int) -> list[tuple[BatchHeader, memoryview]]:
        """Return the next batches of a shard's log from offset ``at``, about `READ_BYTES`; empty at the end of the log.

        The result is a list because segments may be replaced between two steps.
        """
        out: list[tuple[BatchHeader, memoryview]] = []
        log, size = shard.replica.log, 0
        for header, raw in log.segments.batches(at) if at < log.log_end_offset else ():
            if header.next_offset <= at:
                continue
            out.append((header, raw))
            size += len(raw)
            if size >= READ_BYTES:
                break
        return out

    async def _replay(self, shard: Shard[R], batches: list[tuple[BatchHeader, memoryview]]) -> None:
        work, limit = 0, max(MAX_BATCH_BYTES, shard.replica.log.config.max_message_bytes)
        for header, raw in batches:
            work += BATCH_COST_BYTES
            for size in wrap_state_errors(replay_batch(shard.machine, self._serde, header, raw, limit)):
                work += RECORD_COST_BYTES + size
                if work >= REPLAY_SLICE_BYTES:
                    work = 0
                    await trio.lowlevel.checkpoint()
                    if shard.state is not CoordinatorState.LOADING:
                        return
