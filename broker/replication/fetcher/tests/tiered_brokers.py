"""Fixture: a leader whose oldest segments are in the remote store, and a follower that lacks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import trio

from ottla.broker.replication.tests.broker_cluster import TOPIC_ID, BrokerCluster, wait_until
from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_tasks import RemoteLogTasks
from ottla.broker.storage.tiered.remote_storage import IndexType, RemoteLogSegmentMetadata, RemoteStorage
from ottla.broker.storage.tiered.remote_topic_stats import RemoteTopicStats
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.remote_log_tasks_fixture import MetadataTopic
from ottla.log.log_config import TieringConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import make_producer_batch, memory_disk
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

T = TypeVar("T")
PRODUCER_ID = 7
RECORDS_PER_SEGMENT = 5


class FollowerRemoteLog:
    """Tiered storage of the follower. ``failures``: exceptions of the next reads of an index, or indexes' contents."""

    def __init__(self, storage: RemoteStorage, cache: RemoteLogMetadataCache) -> None:
        self.storage: RemoteStorage = self
        self.segments: RemoteLogMetadataCache | None = cache
        self.failures: list[Exception | tuple[IndexType, bytes]] = []
        self.before_read: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._storage = storage
        self.stats = RemoteTopicStats()

    def topic_stats(self, topic: str) -> RemoteTopicStats:
        assert topic == "t"
        return self.stats

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        return self.segments

    async def in_reader_thread(self, work: Callable[[], T]) -> T:
        await self.before_read()
        return work()

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        failure = self.failures[0] if self.failures else None
        if isinstance(failure, Exception):
            del self.failures[0]
            raise failure
        if failure is not None and failure[0] is index:
            del self.failures[0]
            return failure[1]
        return self._storage.fetch_index(metadata, index)

    def copy_segment(self, *arguments: Any) -> bytes | None:
        raise NotImplementedError

    fetch_segment = delete_segment = copy_segment  # type: ignore[assignment]


class TieredBrokers:
    """Broker 1 leads a tiered partition; broker 2 fetches nothing until `connect_follower`."""

    def __init__(self) -> None:
        self.brokers = BrokerCluster(2, remote_log_storage_system_enable="true")
        self.topic = MetadataTopic(lambda operation, is_done: None)
        self.epoch = 0
        self.sequence = 0
        self.list_offsets_errors: list[ErrorCode] = []
        self.requested: list[int] = []
        """Timestamps of the follower's ListOffsets requests."""

    @property
    def leader_log(self) -> PartitionLog:
        log: PartitionLog = self.brokers[1].log
        return log

    @property
    def follower_log(self) -> PartitionLog:
        log: PartitionLog = self.brokers[2].log
        return log

    async def start(self, segments: int = 4) -> None:
        """Disconnect the follower, and append segments in leader epochs of two segments each."""
        self.brokers.cut.add(2)
        await trio.sleep(1)
        for broker in (self.brokers[1], self.brokers[2]):
            tiering = TieringConfig(True, True, -1, -1)
            broker.log.update_config(replace(broker.log.config, tiering=tiering, retention_ms=-1))
        disk = self.brokers[1].env.disk
        self.brokers[1].services.remote_reads = object()  # of which followers and their requests read nothing
        objects = memory_disk().session()
        objects.makedirs("/store")
        store = SegmentStore(DirectoryStore(objects, "/store"), disk)
        self.tasks = RemoteLogTasks(
            self.brokers[1].env, 1, self.leader_log, self.topic.cache, self.topic, store, self._call_store, 128
        )
        self.remote = FollowerRemoteLog(store, self.topic.cache)
        self._connect_fetcher()
        for number in range(segments):
            if number and number % 2 == 0:
                self.commit_next_epoch(2)
                await self.wait_for_epoch()
            self.append(RECORDS_PER_SEGMENT)
            self.leader_log.roll(self.brokers[1].env.now_ms())
        self.append(3)

    async def _call_store(self, work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return work()

    def _connect_fetcher(self) -> None:
        fetcher = self.brokers[2].fetchers._fetchers[1, 0]
        fetcher._dependencies = fetcher._dependencies._replace(remote_log=lambda: self.remote)  # type: ignore[attr-defined]
        call = fetcher._connection.call

        async def recording_call(request: Any, version: int) -> Any:
            if not isinstance(request, ListOffsetsRequest):
                return await call(request, version)
            timestamp = request.topics[0].partitions[0].timestamp
            self.requested.append(timestamp)
            if self.list_offsets_errors:
                row = ListOffsetsPartitionResponse(0, self.list_offsets_errors.pop(0))
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [row])])
            return await call(request, version)

        fetcher._connection.call = recording_call  # type: ignore[method-assign]

    def skip_tiered_offsets(self) -> None:
        """Set ``follower.fetch.last.tiered.offset.enable`` on the follower."""
        fetcher = self.brokers[2].fetchers._fetchers[1, 0]
        fetcher._dependencies = fetcher._dependencies._replace(skips_tiered_offsets=lambda: True)

    def append(self, records: int) -> None:
        """Append batches of one record each of an idempotent producer, and commit them."""
        log, now_ms = self.leader_log, self.brokers[1].env.now_ms()
        for _ in range(records):
            epoch = max(log.epochs.latest_epoch(), 0)
            log.append_as_leader(make_producer_batch(PRODUCER_ID, self.sequence), epoch, now_ms)
            self.sequence += 1
        log.set_high_watermark(log.log_end_offset)
        self.brokers[1].replica.notify_waiters()

    def commit_next_epoch(self, step: int = 1) -> None:
        """Commit a later leader epoch with the same leader."""
        self.brokers.commit_partition(leader_epoch=self.brokers.partition().leader_epoch + step)

    async def wait_for_epoch(self) -> None:
        """Wait until the leader has the committed leader epoch, in which `append` then appends."""
        await wait_until(lambda: self.leader_log.epochs.latest_epoch() == self.brokers.partition().leader_epoch)

    async def copy(self, local_segments: int = 1, log_start: int = 0) -> None:
        """Copy all rolled segments, keep the newest ones locally, and set the log start offset."""
        log, now_ms = self.leader_log, self.brokers[1].env.now_ms()
        await self.tasks.copy_segments()
        log.maybe_increment_local_log_start_offset(log.segments.base_offsets[-local_segments])
        log.maybe_increment_log_start_offset(log_start)
        log.delete_segments_below_start(now_ms)

    def connect_follower(self) -> None:
        """Let metadata and fetches of the follower through."""
        self.brokers.cut.clear()
        self.brokers.commit_partition()

    def is_replicated(self) -> bool:
        """Return whether the follower's log has the end, start and epochs of the leader's."""
        here, there = self.follower_log, self.leader_log
        return (
            here.log_end_offset == there.log_end_offset
            and here.log_start_offset == there.log_start_offset
            and here.epochs.entries == there.epochs.entries
        )


def run(scenario: Callable[[TieredBrokers], Awaitable[None]]) -> TieredBrokers:
    tiered = TieredBrokers()
    tiered.brokers.run(lambda: scenario(tiered))
    return tiered


def check_follower(tiered: TieredBrokers, start: int) -> None:
    """Check that the follower has the leader's records from its local start on, and the state of those below."""
    here, there = tiered.follower_log, tiered.leader_log
    assert (here.local_log_start_offset, here.segments.base_offsets[0]) == (start, start)
    assert (here.log_start_offset, here.log_end_offset) == (there.log_start_offset, there.log_end_offset)
    assert here.epochs.entries == there.epochs.entries
    assert here.producers.producers.entry(PRODUCER_ID) == there.producers.producers.entry(PRODUCER_ID)
    ours, theirs = ([bytes(raw) for _, raw in log.segments.batches(start)] for log in (here, there))
    assert ours == theirs
    assert here.highest_remote_offset >= start - 1
