"""Fixture of tests of remote log tasks: a log, its metadata topic and a store, each of which can fail."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import trio
import trio.testing

from ottla.broker.storage.tests.test_background_tasks import BackgroundEnv
from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadataUpdate,
    decode_remote_log_metadata,
    encode_remote_log_metadata,
)
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_tasks import RemoteLogTasks
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageError,
    SegmentFiles,
)
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges, RemoteTopicStats
from ottla.env.disk import read_file
from ottla.env.env import Env
from ottla.env.memory_disk import DiskSession
from ottla.log.log_config import LogConfig, TieringConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import increment_log_start_by_retention, log_start_after_retention
from ottla.log.tests.log_fixtures import NOW, SMALL, make_batch, memory_disk, new_log, reopen_in_new_session

TIERED = replace(SMALL, retention_ms=-1, tiering=TieringConfig(True, True, -1, 2500))


class TaskEnv(BackgroundEnv):
    """Environment with a seeded source of UUIDs and a clock that tests set."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.time_ms = NOW

    def now_ms(self) -> int:
        return self.time_ms

    def uuid(self) -> bytes:
        return self._random.randbytes(16)


class MemoryRemoteStorage:
    """Remote store in memory. ``fail(operation, is_done)`` may raise before an operation and after it."""

    def __init__(self, disk: DiskSession, fail: Callable[[str, bool], None]) -> None:
        self.disk = disk
        self.objects: dict[RemoteLogSegmentId, bytes] = {}
        self.files: dict[RemoteLogSegmentId, SegmentFiles] = {}
        self.custom_metadata: bytes | None = b"etag"
        self._fail = fail

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        self._fail("copy", False)
        data = read_file(self.disk, str(files.log))
        assert len(data) == metadata.segment_size_bytes
        for path in (files.offset_index, files.time_index, files.producer_snapshot, files.transaction_index):
            assert path is None or self.disk.exists(str(path))
        self.objects[metadata.segment_id], self.files[metadata.segment_id] = data, files
        self._fail("copy", True)
        return self.custom_metadata

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._fail("delete", False)
        self.objects.pop(metadata.segment_id, None)
        self._fail("delete", True)

    def fetch_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        return self.objects[metadata.segment_id][start:end]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        raise NotImplementedError


class MetadataTopic:
    """Metadata topic in memory, replayed into the cache of the partition."""

    def __init__(self, fail: Callable[[str, bool], None]) -> None:
        self.records: list[bytes] = []
        self.cache = RemoteLogMetadataCache()
        self._fail = fail

    async def write(self, record: RemoteLogMetadata) -> None:
        await trio.lowlevel.checkpoint()
        self._fail("metadata", False)
        self.records.append(encode_remote_log_metadata(record))
        self._replay(record)
        self._fail("metadata", True)

    def _replay(self, record: RemoteLogMetadata) -> None:
        if isinstance(record, RemoteLogSegmentMetadata):
            self.cache.add(record)
        else:
            assert isinstance(record, RemoteLogSegmentMetadataUpdate)
            self.cache.update(record)

    def load(self) -> None:
        """Rebuild the cache from all records, as after a start."""
        self.cache = RemoteLogMetadataCache()
        for raw in self.records:
            self._replay(decode_remote_log_metadata(raw))
        self.cache.is_initialized = True


class TieredPartitionFixture:
    """Leader of one tiered partition. ``failures``: operations that fail, each once, as (name, after it was done)."""

    def __init__(self, seed: int = 1, settings: LogConfig = TIERED) -> None:
        self.env = TaskEnv(seed)
        self.memory = memory_disk(seed)
        self.memory.now_ms = lambda: self.env.time_ms
        self.settings = settings
        self.log = new_log(self.memory.session(), settings)
        self.failures: list[tuple[str, bool]] = []
        self.store = MemoryRemoteStorage(self.memory.session(), self._fail)
        self.topic = MetadataTopic(self._fail)
        self.records = 0
        self.persisted_start = 0
        self.epoch = 0
        self.stats, self.gauges = RemoteTopicStats(), RemotePartitionGauges()
        self.lead()

    def _fail(self, operation: str, is_done: bool) -> None:
        if (operation, is_done) in self.failures:
            self.failures.remove((operation, is_done))
            raise RemoteStorageError(f"injected: {operation}")

    def lead(self) -> None:
        """Become the leader: replay the metadata topic and create new tasks."""
        self.topic.load()
        self.tasks = RemoteLogTasks(
            *(cast("Env", self.env), 1, self.log, self.topic.cache, self.topic, self.store, self._call_store, 128),
            stats=self.stats,
            gauges=self.gauges,
        )
        self.tasks.on_leadership()

    async def _call_store(self, work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return work()

    def append(self, batches: int) -> None:
        for _ in range(batches):
            self.log.append_as_leader(make_batch(self.records), self.epoch, self.env.time_ms)
            self.log.set_high_watermark(self.log.log_end_offset)
            self.records += 1

    def copy(self) -> int | None:
        """Return the number of copied segments; None after an injected failure."""
        return self._run(self.tasks.copy_segments)

    def expire(self) -> int | None:
        """Return the number of deleted segments; None after an injected failure."""
        return self._run(lambda: self.tasks.expire_segments(self._persist))

    async def _persist(self) -> None:
        await trio.lowlevel.checkpoint()
        self.persisted_start = self.log.log_start_offset

    @staticmethod
    def _run(work: Callable[[], Awaitable[int]]) -> int | None:
        async def run() -> int | None:
            try:
                return await work()
            except RemoteStorageError:
                return None

        return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    def retain_locally(self) -> None:
        """Apply local retention, as the broker does in the background."""
        start = log_start_after_retention(self.log, self.env.time_ms)
        if start is not None and increment_log_start_by_retention(self.log, start):
            self.persisted_start = self.log.log_start_offset
            self.log.delete_segments_below_start(self.env.time_ms)

    def restart(self, *, clean: bool) -> None:
        """Stop the node, with or without a clean shutdown, and lead again with the next epoch."""
        if clean:
            self.log.close()
            self.persisted_start = self.log.log_start_offset
        self.log = reopen_in_new_session(
            self.memory, self.settings, clean=clean, point=self.log.log_end_offset, start=self.persisted_start
        )
        self.log.set_high_watermark(self.log.log_end_offset)
        self.epoch += 1
        self.lead()

    def readable_from_store(self) -> PartitionLog:
        """Check that each record is in a local segment or in a readable remote one; return the log."""
        log = self.log
        for offset in range(log.log_start_offset, log.local_log_start_offset):
            metadata = self.topic.cache.segment_for(log.epochs.epoch_for_offset(offset), offset)
            assert metadata is not None, f"offset {offset} is in no tier: {log.describe()}"
            assert metadata.segment_id in self.store.objects, f"offset {offset}: its object is missing"
        assert log.segments.base_offsets[0] <= log.local_log_start_offset
        return log

    def orphans(self) -> set[RemoteLogSegmentId]:
        """Return the objects in the store that the metadata does not have."""
        return self.store.objects.keys() - {each.segment_id for each in self.topic.cache.list_segments()}
