"""Manager of tiered storage on a broker (KIP-405): remote segments of its partitions, and the tasks that move them.

The tasks of a partition run while this broker leads it. On followers the highest offset in the remote store is set in
the same interval, so that local retention applies there, too. When a topic is deleted, or its tiered storage ends, the
leaders of its partitions delete their remote segments.

Source: ``RemoteLogManager.java``, ``ConfigHandler.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from ottla.broker.remote_log.remote_partition_tasks import RemotePartitionTasks, RemoteTaskDependencies
from ottla.broker.remote_log.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.broker.storage.tiered.chunk_cache import ReadAhead
from ottla.broker.storage.tiered.leader_epoch_lineage import find_copied_offset
from ottla.broker.storage.tiered.remote_log_manager_config import RemoteLogManagerConfig
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_quota import RemoteLogQuota
from ottla.broker.storage.tiered.remote_partition_metadata_store import TopicIdPartition
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.broker.storage.tiered.remote_thread_pool import RemoteThreadPool
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges, RemoteTopicStats
from ottla.broker.storage.tiered.store_calls import StoreCalls
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.supervision import run_logging_failure
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog

T = TypeVar("T")
PARTITIONS_PER_STEP = 100


class RemoteLogDependencies(NamedTuple):
    """Components and callbacks of the broker that `RemoteLogManager` uses."""

    env: Env
    broker_id: int
    replicas: ReplicaManager
    metadata: TopicBasedRemoteLogMetadataManager
    open_storage: Callable[[ReadAhead], RemoteStorage]
    """Function that opens the remote store; called in a thread, with a function that runs reads ahead."""
    current_settings: Callable[[], RemoteLogManagerConfig]
    """Function that returns the settings with the current dynamic values."""
    persist_log_start: Callable[[PartitionLog], Awaitable[None]]
    fail: DiskErrorHandler
    start: Callable[[Callable[[], Awaitable[None]]], None]
    """Function that starts a task in the background, and again after a failure."""


class RemoteLogManager:
    """Manager of tiered storage for the partitions that this broker hosts: store, quotas, threads and tasks."""

    def __init__(self, around: RemoteLogDependencies) -> None:
        """Create the manager, without partitions; `open` must precede all use of the store."""
        env = around.env
        self._around = around
        self._metadata = around.metadata
        self._storage: RemoteStorage | None = None
        self.settings = settings = around.current_settings()
        """Current settings."""
        self.read_quota = RemoteLogQuota(
            env, settings.fetch_bytes_per_second, settings.fetch_quota_samples, settings.fetch_quota_window_s
        )
        """Quota of bytes read from the remote store."""
        self.copy_quota = RemoteLogQuota(
            env, settings.copy_bytes_per_second, settings.copy_quota_samples, settings.copy_quota_window_s
        )
        """Quota of bytes copied to the remote store."""
        self.calls = StoreCalls(env)
        """Calls of the remote store in progress."""
        self.readers = RemoteThreadPool(self.calls, settings.reader_threads, settings.reader_max_pending_tasks)
        self.copiers = RemoteThreadPool(self.calls, settings.copier_threads)
        self.expirers = RemoteThreadPool(self.calls, settings.expiration_threads)
        self.stats: dict[str, RemoteTopicStats] = {}
        """Counters of the tiered topics by name."""
        self._task_dependencies = RemoteTaskDependencies(
            env,
            around.broker_id,
            around.metadata,
            lambda: self.storage,
            lambda: self.settings,
            self.calls,
            self.copiers,
            self.expirers,
            self.copy_quota,
            self.topic_stats,
            around.persist_log_start,
            around.fail,
        )
        self._leaders: dict[TopicIdPartition, RemotePartitionTasks] = {}
        self._followers: dict[TopicIdPartition, HostedPartition] = {}
        self._deletions: set[TopicIdPartition] = set()
        """Partitions whose remote segments are being deleted; no task of them begins before the end."""

    @property
    def storage(self) -> RemoteStorage:
        """Remote store; AssertionError before `open`. Its calls block: they are made in threads."""
        assert self._storage is not None, "the manager is opened before partitions are"
        return self._storage

    async def open(self) -> None:
        """Open the remote store in a thread; must precede all use of `storage`.

        Raises:
            ConfigException: It cannot be opened with the settings of this broker.
            OSError: The directory of the chunk cache cannot be read or created.
        """
        token = trio.lowlevel.current_trio_token()

        def read_ahead(work: Callable[[], None]) -> None:
            """Start ``work`` as a task of the event loop; called in another thread."""
            token.run_sync_soon(self._start_read_ahead, work)

        self._storage = await self._around.env.in_thread(partial(self._around.open_storage, read_ahead))
        self._around.start(self.calls.run_until_stopped)

    def _start_read_ahead(self, work: Callable[[], None]) -> None:
        """Start a read ahead; no effect after the stop of the node, of which a thread may ask that was abandoned."""
        if not self.calls.is_stopped:
            self._around.start(partial(self._read_ahead, work))

    async def _read_ahead(self, work: Callable[[], None]) -> None:
        """Run a read ahead once; a failure, such as a lack of threads, is logged, and not repeated."""
        await run_logging_failure("Reading ahead from the remote store", partial(self.calls.run, work))

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        """Return the remote segments of a partition; None while their metadata is not loaded, or if it is not tiered.

        A request for the partition then fails with a retriable error.
        """
        return self._metadata.cache((topic_id, partition))

    async def in_reader_thread(self, work: Callable[[], T]) -> T:
        """Run a call of the store for a read in one of ``remote.log.reader.threads`` threads; return its result.

        An error of the call is raised.

        Raises:
            RemoteReadQueueFullError: ``remote.log.reader.max.pending.tasks`` calls wait already.
        """
        return await self.readers.run(work)

    # ------------------------------------------------------------------ metrics

    def topic_stats(self, topic: str) -> RemoteTopicStats:
        """Return the counters of a topic, which the caller may increment; they are created if missing."""
        return self.stats.setdefault(topic, RemoteTopicStats())

    def gauges_by_topic_job(self) -> Job[dict[str, RemotePartitionGauges]]:
        """Return the sums of the gauges of the partitions that this broker leads, by topic, as a job."""
        out: dict[str, RemotePartitionGauges] = {}
        for number, tasks in enumerate(list(self._leaders.values()), 1):
            out.setdefault(tasks.replica.topic, RemotePartitionGauges()).add(tasks.gauges)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        return out

    def gauges(self, topic_id: bytes, partition: int) -> RemotePartitionGauges | None:
        """Return the gauges of a partition that this broker leads; None for others."""
        tasks = self._leaders.get((topic_id, partition))
        return None if tasks is None else tasks.gauges

    # ------------------------------------------------------------------ partitions

    def on_leader(self, replica: HostedPartition) -> None:
        """Start the tasks of a partition that this broker leads now, if its topic is tiered."""
        self._update(replica)

    def on_follower(self, replica: HostedPartition, leader: int, leader_epoch: int) -> None:
        """Stop the tasks of a partition that this broker follows now.

        From now on only its highest remote offset is updated, if its topic is tiered.
        """
        self._update(replica)

    def on_resigned(self, replica: HostedPartition) -> None:
        """Stop the tasks of a partition that this broker does not host any more; no effect if it follows it.

        If this broker led it and its topic was deleted, the deletion of its remote segments is started.
        """
        replicas = self._around.replicas
        if replicas.get(replica.topic, replica.partition) is replica:
            return  # followed from now on
        is_deleted = replica.topic_id not in replicas.image.topic_names
        self._stop((replica.topic_id, replica.partition), deletes=is_deleted)

    def _update(self, replica: HostedPartition) -> None:
        """Start or stop the tasks of a hosted partition by its role and the settings of its topic.

        No effect while its remote segments are being deleted.
        """
        key = (replica.topic_id, replica.partition)
        if not replica.log.config.tiering.is_enabled:
            if key in self._leaders or key in self._followers:
                self._end_tiering(key, replica)
            return
        if key in self._deletions:
            return
        self._metadata.assign(key)
        tasks = self._leaders.get(key)
        if replica.is_leader:
            self._followers.pop(key, None)
            if tasks is None:
                tasks = self._leaders[key] = RemotePartitionTasks(self._task_dependencies, replica)
                self._around.start(tasks.run)
            return
        if tasks is not None:
            self._leaders.pop(key).cancel()
        self._followers[key] = replica

    def _end_tiering(self, key: TopicIdPartition, replica: HostedPartition) -> None:
        """Stop the tasks of a partition whose topic is not tiered any more; its leader deletes the remote segments.

        Handles ``remote.storage.enable=false``, which needs ``remote.log.delete.on.disable=true``: the log then starts
        at the local log start offset.
        """
        log = replica.log
        if replica.is_leader and not log.closed:
            try:
                log.maybe_increment_log_start_offset(log.local_log_start_offset)
            except OSError as error:
                self._around.fail(error, log)
            replica.notify_waiters()
        log.forget_remote_records()
        self._stop(key, deletes=True)

    def _stop(self, key: TopicIdPartition, *, deletes: bool) -> None:
        """Stop the tasks of a partition and untrack its remote segments; ``deletes``: its leader deletes them first."""
        self._followers.pop(key, None)
        tasks = self._leaders.pop(key, None)
        if tasks is not None:
            tasks.cancel()
            if deletes:
                self._deletions.add(key)
                self._around.start(partial(self._delete, tasks))
                return
        self._metadata.unassign(key)

    async def _delete(self, tasks: RemotePartitionTasks) -> None:
        await tasks.delete_all()
        self._deletions.discard(tasks.key)
        self._metadata.unassign(tasks.key)
        hosted = self._around.replicas.get(tasks.replica.topic, tasks.replica.partition)
        if hosted is not None and hosted.topic_id == tasks.replica.topic_id:
            self._update(hosted)  # tiered again meanwhile

    # ------------------------------------------------------------------ settings

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply a metadata publication: settings of topics and of this broker, and leaders of the metadata topic.

        Tasks of hosted partitions start or stop with the tiering of their topic; quotas and thread pools get the new
        settings. Roles of hosted partitions are reported by `on_leader`, `on_follower` and `on_resigned`.
        """
        self._metadata.publish(image, delta)
        for resource_type, name in delta.configs:
            if resource_type == RESOURCE_TOPIC and name in image.topics:
                for number in image.topics[name].partitions:
                    replica = self._around.replicas.get(name, number)
                    if replica is not None:
                        self._update(replica)
        if any(resource_type == RESOURCE_BROKER for resource_type, _ in delta.configs):
            self._update_settings(self._around.current_settings())

    def _update_settings(self, settings: RemoteLogManagerConfig) -> None:
        self.settings = settings
        self.read_quota.bytes_per_second = settings.fetch_bytes_per_second
        self.copy_quota.bytes_per_second = settings.copy_bytes_per_second
        self.readers.resize(settings.reader_threads)
        self.copiers.resize(settings.copier_threads)
        self.expirers.resize(settings.expiration_threads)

    # ------------------------------------------------------------------ background

    async def run(self) -> None:
        """Read the metadata topic, and update the highest remote offsets of followed partitions, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._metadata.run)
            while True:
                await self._around.env.sleep(self.settings.task_interval_ms / 1000)
                await run_in_background(self._around.env, self._update_followers())

    def _update_followers(self) -> Job[None]:
        """Raise the highest remote offset of partitions that this broker follows (``RLMFollowerTask``), as a job."""
        for key, replica in list(self._followers.items()):
            yield None
            cache, log = self._metadata.cache(key), replica.log
            if cache is not None and not log.closed and key in self._followers:
                copied = find_copied_offset(cache, log.epochs, log.log_start_offset, log.log_end_offset)
                log.raise_highest_remote_offset(copied)
