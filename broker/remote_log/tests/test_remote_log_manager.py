"""Manager of tiered storage: tasks by leadership and settings, deletion with the topic, followers, quota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.remote_log_metrics import add_remote_log_metrics
from ottla.broker.remote_log.remote_log_manager import RemoteLogDependencies, RemoteLogManager
from ottla.broker.remote_log.tests.metadata_topic_fixture import MemoryMetadataTopic
from ottla.broker.remote_log.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.tiered.remote_log_manager_config import (
    RemoteLogMetadataTopicConfig,
    remote_log_manager_config,
)
from ottla.broker.storage.tiered.remote_storage import RemoteStorageError
from ottla.broker.storage.tiered.tests.remote_log_tasks_fixture import MemoryRemoteStorage
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import increment_log_start_by_retention, log_start_after_retention
from ottla.log.tests.log_fixtures import make_batch

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "2000", "local.retention.bytes": "1"}
ROUND_S = 31.0
"""Time in s after which each task has run once more."""
OTHER = NODE_ID + 1


class ManagerFixture(BrokerStorageFixture):
    """Broker with a manager of tiered storage, a metadata topic and a store in memory."""

    def __init__(self) -> None:
        super().__init__(remote_log_storage_system_enable="true")
        self.topic = MemoryMetadataTopic()
        self.store_fails = False
        self.store = MemoryRemoteStorage(self.env.disk, self._fail)
        self.copies = 0
        self.persisted: list[int] = []
        self.tasks: list[Callable[[], Awaitable[None]]] = []
        self.nursery: trio.Nursery | None = None
        metadata = TopicBasedRemoteLogMetadataManager(
            self.env, self.topic, RemoteLogMetadataTopicConfig(num_partitions=1), lambda: None
        )
        self.manager = RemoteLogManager(
            RemoteLogDependencies(
                self.env,
                NODE_ID,
                self.replica_manager,
                metadata,
                self._open_store,
                partial(remote_log_manager_config, self._setting),
                self._persist,
                self.failure_handler.handle_failure,
                self._start,
            )
        )
        self.replica_manager.on_leader.append(self.manager.on_leader)
        self.replica_manager.on_follower.append(self.manager.on_follower)
        self.replica_manager.on_resigned.append(self.manager.on_resigned)
        self.publisher.subscribe(self.manager.publish)

    def _open_store(self, read_ahead: Callable[[Callable[[], None]], None]) -> MemoryRemoteStorage:
        self.read_ahead = read_ahead
        return self.store

    def _setting(self, name: str) -> str:
        return self.config.effective_value(self.image, name) or ""

    def _fail(self, operation: str, is_done: bool) -> None:
        if self.store_fails:
            raise RemoteStorageError(f"injected: {operation}")
        self.copies += is_done and operation == "copy"

    async def _persist(self, log: PartitionLog) -> None:
        self.persisted.append(log.log_start_offset)

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self.nursery is not None
        self.nursery.start_soon(work)

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario with the manager."""

        async def main() -> None:
            await self.manager.open()
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(self.manager.run)
                await scenario()
                self.nursery.cancel_scope.cancel()

        self.run(main)

    async def commit(self, topic: Any = None, *, broker: dict[str, str] | None = None, **settings: str) -> None:
        """Commit a tiered topic with settings, and settings of the broker; wait until they are applied."""
        values = {**TIERED, **{name.replace("_", "."): value for name, value in settings.items()}}
        configs = {(RESOURCE_TOPIC, "t"): values, (RESOURCE_BROKER, ""): broker or {}}
        self.commit_topics(topic or led_topic("t", 1), configs=configs)
        await self.publisher.wait_applied_and_created()

    @property
    def replica(self) -> HostedPartition:
        found = self.replica_manager.get("t", 0)
        assert found is not None
        return found

    def append(self, batches: int) -> None:
        replica = self.replica
        for number in range(batches):
            replica.append(make_batch(3 * number), self.env.now_ms())

    def retain_locally(self) -> None:
        """Apply local retention, as the broker does in the background."""
        log = self.replica.log
        start = log_start_after_retention(log, self.env.now_ms())
        if start is not None and increment_log_start_by_retention(log, start):
            log.delete_segments_below_start(self.env.now_ms())


def test_leader_copies_rolled_segments_and_local_retention_deletes_them() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        log = fixture.replica.log
        fixture.retain_locally()
        assert log.local_log_start_offset == 0
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(log.segments) - 1 > 3
        assert log.highest_remote_offset == log.segments.active.base_offset - 1
        fixture.retain_locally()
        assert log.log_start_offset == 0 < log.local_log_start_offset == log.segments.base_offsets[0]
        cache = fixture.manager.cache(fixture.replica.topic_id, 0)
        assert cache is not None
        assert len(cache.list_segments()) == len(fixture.store.objects)

    fixture.play(scenario)


def test_topic_without_remote_storage_has_no_tasks() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(remote_storage_enable="false")
        fixture.append(60)
        await trio.sleep(ROUND_S)
        assert fixture.manager.cache(fixture.replica.topic_id, 0) is None
        assert not fixture.store.objects
        await fixture.commit()  # enabled later
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(fixture.replica.log.segments) - 1

    fixture.play(scenario)


def test_remote_retention_deletes_segments_after_the_log_start_is_persisted() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(retention_bytes="5000")
        fixture.append(60)
        await trio.sleep(3 * ROUND_S)
        log = fixture.replica.log
        assert fixture.persisted[-1] == log.log_start_offset > 0
        assert 0 < len(fixture.store.objects) < fixture.copies

    fixture.play(scenario)


def test_follower_copies_nothing_and_follows_the_offset_of_the_copies() -> None:
    fixture = ManagerFixture()
    followed = led_topic("t", 1, replicas=(NODE_ID, OTHER), isr=(NODE_ID, OTHER), leader=OTHER, leader_epoch=1)

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        log = fixture.replica.log
        fixture.store_fails = False
        await fixture.commit(followed)
        await trio.sleep(ROUND_S)
        assert (fixture.copies, log.highest_remote_offset) == (0, -1)
        await fixture.commit(led_topic("t", 1, leader_epoch=2, partition_epoch=2))
        await trio.sleep(ROUND_S)
        copies = fixture.copies
        assert copies == len(log.segments) - 1
        log.forget_remote_records()
        await fixture.commit(led_topic("t", 1, replicas=(NODE_ID, OTHER), leader=OTHER, leader_epoch=3))
        await trio.sleep(ROUND_S)
        assert log.highest_remote_offset == log.segments.active.base_offset - 1
        assert fixture.copies == copies

    fixture.play(scenario)


def test_failing_store_stops_nothing_local_and_the_next_run_repeats_the_copy() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(30)
        fixture.store_fails = True
        await trio.sleep(2 * ROUND_S)
        fixture.append(30)
        fixture.retain_locally()
        assert fixture.replica.log.local_log_start_offset == 0
        fixture.store_fails = False
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(fixture.replica.log.segments) - 1
        assert not fixture.ended

    fixture.play(scenario)


def test_leader_deletes_the_remote_segments_of_a_deleted_topic() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        topic_id = fixture.replica.topic_id
        assert fixture.store.objects
        fixture.store_fails = True
        fixture.commit_topics(gone=("t",))
        await trio.sleep(ROUND_S)
        assert fixture.store.objects
        assert fixture.manager.cache(topic_id, 0) is not None
        fixture.store_fails = False
        await trio.sleep(ROUND_S)
        assert not fixture.store.objects
        assert fixture.manager.cache(topic_id, 0) is None

    fixture.play(scenario)


def test_removed_replica_leaves_the_remote_segments_to_others() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        topic_id, count = fixture.replica.topic_id, len(fixture.store.objects)
        await fixture.commit(led_topic("t", 1, replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=1))
        await trio.sleep(ROUND_S)
        assert fixture.replica_manager.get("t", 0) is None
        assert len(fixture.store.objects) == count > 0
        assert fixture.manager.cache(topic_id, 0) is None

    fixture.play(scenario)


def test_disabled_remote_storage_deletes_remote_segments_and_their_records() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        fixture.retain_locally()
        log = fixture.replica.log
        await fixture.commit(remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert log.log_start_offset == log.local_log_start_offset > 0
        assert log.highest_remote_offset == -1
        await trio.sleep(ROUND_S)
        assert not fixture.store.objects
        assert fixture.manager.cache(log.topic_id, 0) is None

    fixture.play(scenario)


def test_remote_storage_that_is_enabled_again_copies_the_local_segments_again() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        log = fixture.replica.log
        count = len(fixture.store.objects)
        fixture.store_fails = True
        await fixture.commit(remote_storage_enable="false", remote_log_delete_on_disable="true")
        await fixture.commit()
        await trio.sleep(ROUND_S)
        assert fixture.copies == count  # the deletion of the former segments is not complete
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        assert fixture.copies == 2 * count
        assert {x.segment_id for x in fixture.manager.cache(log.topic_id, 0).list_segments()} == set(  # type: ignore[union-attr]
            fixture.store.objects
        )
        assert log.highest_remote_offset == log.segments.active.base_offset - 1

    fixture.play(scenario)


def test_disabled_copies_keep_the_remote_segments() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(30)
        await trio.sleep(ROUND_S)
        count = len(fixture.store.objects)
        await fixture.commit(remote_log_copy_disable="true")
        fixture.append(30)
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == count > 0
        await fixture.commit()
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) > count

    fixture.play(scenario)


def test_copy_quota_and_thread_pools_follow_the_dynamic_settings() -> None:
    fixture = ManagerFixture()
    rate = "remote.log.manager.copy.max.bytes.per.second"

    async def scenario() -> None:
        broker = {rate: "10", "remote.log.reader.threads": "3", "remote.log.manager.copier.thread.pool.size": "1"}
        await fixture.commit(broker=broker)
        assert fixture.manager.readers.limiter.total_tokens == 3
        assert fixture.manager.copiers.limiter.total_tokens == 1
        fixture.append(60)
        await trio.sleep(ROUND_S)
        assert 0 < fixture.copies < 4
        await fixture.commit()
        await trio.sleep(2 * ROUND_S)
        assert fixture.copies == len(fixture.replica.log.segments) - 1

    fixture.play(scenario)


def test_metrics_have_copies_errors_and_lag() -> None:
    fixture = ManagerFixture()
    prefix = "kafka_server_brokertopicmetrics_remote"

    async def samples() -> dict[str, float]:
        page = MetricsBuilder()
        for _ in add_remote_log_metrics(page, fixture.manager):
            await trio.lowlevel.checkpoint()
        job = page.finish()
        try:
            while True:
                next(job)
        except StopIteration as done:
            lines = b"".join(done.value).decode().splitlines()
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        log = fixture.replica.log
        rolled = len(log.segments) - 1
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        found = await samples()
        at = '{topic="t"}'
        assert found[f"{prefix}copyerrors_total{at}"] == found[f"{prefix}copyerrors_total"] > 0
        assert found[f"{prefix}deleteerrors_total{at}"] > 0
        assert found[f"{prefix}copylagsegments{at}"] == rolled
        assert found[f"{prefix}copylagbytes{at}"] == log.size_bytes - log.segments.active.size_bytes
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        found = await samples()
        assert found[f"{prefix}copylagsegments{at}"] == found[f"{prefix}copylagbytes"] == 0
        assert found[f"{prefix}copybytes_total{at}"] == log.size_bytes - log.segments.active.size_bytes
        assert found[f"{prefix}logmetadatacount{at}"] == rolled
        assert found[f"{prefix}logsizebytes{at}"] == found[f"{prefix}copybytes_total{at}"]
        assert found["kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"] == 1.0

    fixture.play(scenario)


def test_store_reads_ahead_in_a_thread() -> None:
    fixture = ManagerFixture()
    done: list[bool] = []

    async def scenario() -> None:
        fixture.read_ahead(lambda: done.append(fixture.env.is_beside))
        await trio.sleep(1)

    fixture.play(scenario)
    assert done == [True]
