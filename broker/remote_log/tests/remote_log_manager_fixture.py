"""Fixture of tests of the manager of tiered storage: a broker with a metadata topic and a store in memory."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

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
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, SlowEnv, led_topic
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.env.env import ThreadPool
from ottla.jobs.supervision import supervise
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import increment_log_start_by_retention, log_start_after_retention
from ottla.log.tests.log_fixtures import make_batch

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "2000", "local.retention.bytes": "1"}
ROUND_S = 31.0
"""Time in s after which each task has run once more."""
HANG_S = 100_000.0
OTHER = NODE_ID + 1


class FewThreadsEnv(SlowEnv):
    """Environment that can lack threads for calls of the remote store."""

    has_threads = True
    hangs = False
    """True if calls of the remote store do not return."""

    async def in_thread(self, work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        if lane is ThreadPool.REMOTE_STORAGE and not self.has_threads:
            raise OSError(errno.EAGAIN, "the system grants no more threads")
        if lane is ThreadPool.REMOTE_STORAGE and self.hangs:
            await trio.sleep(HANG_S)
        return await super().in_thread(work, lane)


class ManagerFixture(BrokerStorageFixture):
    """Broker with a manager of tiered storage, a metadata topic and a store in memory."""

    def __init__(self) -> None:
        super().__init__(env=FewThreadsEnv(), remote_log_storage_system_enable="true")
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
        self.nursery.start_soon(supervise, self.env, "tiered storage", work)

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario with the manager."""

        async def main() -> None:
            async with trio.open_nursery() as self.nursery:
                await self.manager.open()
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
