"""Fixture of reads from the remote tier: a node with tiered partitions, a directory as the store, and virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import trio

from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_tasks import RemoteLogTasks
from ottla.broker.storage.tiered.remote_reads import RemoteReads
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.broker.storage.tiered.remote_topic_stats import RemoteTopicStats
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.remote_log_tasks_fixture import MetadataTopic
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, VirtualEnv, resolve, run_virtual
from ottla.env.env import Env
from ottla.log.log_config import TieringConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import SMALL, UNVERIFIED_TXN, make_batch, make_marker, make_transactional_batch
from ottla.wire.api_keys import ApiKey

T = TypeVar("T")
TIERED = replace(SMALL, retention_ms=-1, tiering=TieringConfig(True, True, -1, -1))
MAX_WAIT_MS = 500


class ReadSettings(NamedTuple):
    fetch_max_wait_ms: int = MAX_WAIT_MS
    list_offsets_timeout_ms: int = 30_000
    index_cache_bytes: int = 1 << 20


class ReadQuota:
    """Quota that is exceeded if ``wait_ms`` is set."""

    def __init__(self) -> None:
        self.wait_ms = 0
        self.recorded: list[int] = []

    def throttle_ms(self) -> int:
        return self.wait_ms

    def record(self, size_bytes: int) -> None:
        self.recorded.append(size_bytes)


class FakeRemoteLog:
    """Manager of tiered storage with a directory as the store. ``errors`` are raised by the next reads."""

    def __init__(self, env: VirtualEnv) -> None:
        env.disk.makedirs("/remote")
        self.storage: RemoteStorage = SegmentStore(DirectoryStore(env.disk, "/remote"), env.disk)
        self.settings = ReadSettings()
        self.read_quota = ReadQuota()
        self.stats: dict[str, RemoteTopicStats] = {}
        self.caches: dict[tuple[bytes, int], RemoteLogMetadataCache] = {}
        self.delay_s = 0.0
        self.calls = self.completed = 0
        self.errors: list[Exception] = []

    def topic_stats(self, topic: str) -> RemoteTopicStats:
        return self.stats.setdefault(topic, RemoteTopicStats())

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        return self.caches.get((topic_id, partition))

    async def in_reader_thread(self, work: Callable[[], T]) -> T:
        self.calls += 1
        await trio.sleep(self.delay_s)
        if self.errors:
            raise self.errors.pop(0)
        self.completed += 1
        return work()


class TieredFixture(HandlerFixture):
    """Node with tiered topics. Each has an untiered copy, without tiered storage."""

    def __init__(self) -> None:
        super().__init__()
        self.remote = FakeRemoteLog(self.env)
        self.topics: dict[str, MetadataTopic] = {}
        self._nursery: trio.Nursery | None = None
        self.reads = RemoteReads(
            cast("Env", self.env), self.remote, self._start, self.services.purgatory.check_and_complete
        )
        self.services.remote_reads = self.reads

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(work)

    @property
    def read_stats(self) -> RemoteTopicStats:
        """Counters of all topics."""
        out = RemoteTopicStats()
        for stats in self.remote.stats.values():
            out.add(stats)
        return out

    # ------------------------------------------------------------------ logs

    def host(self, name: str = "t", *, replicas: tuple[int, ...] = (1,)) -> HostedPartition:
        """Host a tiered topic and its untiered copy; return the tiered partition."""
        self.hosted.host(f"{name}-untiered", settings=SMALL)
        replica = self.hosted.host(name, settings=TIERED, replicas=replicas)
        topic = self.topics[name] = MetadataTopic(lambda operation, is_done: None)
        topic.cache.is_initialized = True
        self.remote.caches[replica.topic_id, 0] = topic.cache
        return replica

    def log(self, name: str = "t") -> PartitionLog:
        return self.hosted.replicas[name, 0].log

    def untiered(self, name: str = "t") -> PartitionLog:
        return self.log(f"{name}-untiered")

    def append(self, data: bytearray, name: str = "t", epoch: int = 0) -> int:
        """Append a batch to a topic and its untiered copy; return its base offset."""
        for log in (self.log(name), self.untiered(name)):
            raw, origin = bytearray(data), AppendOrigin.COORDINATOR
            base = log.append_as_leader(raw, epoch, NOW_MS, origin, txn=UNVERIFIED_TXN).first_offset
            log.set_high_watermark(log.log_end_offset)
        return base

    def append_batches(self, count: int, name: str = "t", epoch: int = 0) -> None:
        for _ in range(count):
            self.append(make_batch(self.log(name).log_end_offset), name, epoch)

    def append_aborted(self, producer_id: int, batches: int, name: str = "t") -> None:
        """Append an aborted transaction; other batches of the topic may be appended between two calls."""
        for sequence in range(batches):
            self.append(make_transactional_batch(producer_id, sequence), name)
        self.append(make_marker(producer_id, 0), name)

    def tier(self, name: str = "t", *, local_start: int | None = None) -> PartitionLog:
        """Copy the rolled segments to the store, and delete local ones below the active one or ``local_start``."""
        log, topic = self.log(name), self.topics[name]

        async def call_store(work: Callable[[], Any]) -> Any:
            await trio.lowlevel.checkpoint()
            return work()

        tasks = RemoteLogTasks(cast("Env", self.env), 1, log, topic.cache, topic, self.remote.storage, call_store, 128)
        run_virtual(tasks.copy_segments)
        start = log.segments.active.base_offset if local_start is None else local_start
        log.maybe_increment_local_log_start_offset(start)
        log.delete_segments_below_start(NOW_MS)
        return log

    def cache(self, chunk_bytes: int = 1 << 20, max_bytes: int = 1 << 30) -> CachedRemoteStorage:
        """Put a chunk cache in front of the store, and return it."""
        store = self.remote.storage
        assert isinstance(store, SegmentStore)
        options = ChunkCacheOptions("/cache", max_bytes, chunk_bytes)
        cached = self.remote.storage = CachedRemoteStorage(store, self.env.disk, options)
        return cached

    # ------------------------------------------------------------------ requests

    @contextmanager
    def _tasks(self, nursery: trio.Nursery) -> Iterator[None]:
        self._nursery = nursery
        yield
        nursery.cancel_scope.cancel()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` while reads may be started."""

        async def main() -> T:
            async with trio.open_nursery() as nursery:
                with self._tasks(nursery):
                    result = await work()
            return result

        return run_virtual(main)

    def send(
        self,
        handle: Callable[[Any, Any], Any],
        key: ApiKey,
        version: int,
        request: Any,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[Any, float]:
        """Send a request to a handler; return the response and the seconds it took."""
        self.sent = context = self.context(key, version)
        context.peer.collects_errors = True

        async def main() -> tuple[Any, float]:
            if meanwhile is not None:
                self._start(meanwhile)
            began = trio.current_time()
            answer = await resolve(handle(context, request))
            return answer, trio.current_time() - began

        return self.run(main)
