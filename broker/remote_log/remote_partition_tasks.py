"""Tasks of a tiered partition of which this broker is the leader: periodic copies and expiration, and final deletion.

The final deletion of all remote segments follows that of the topic, or the end of its tiered storage.

Source: ``RemoteLogManager.RLMTask``, ``RemoteLogManager.deleteRemoteLogPartition`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import trio

from ottla.broker.remote_log.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.broker.storage.tiered.remote_log_manager_config import RemoteLogManagerConfig
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_quota import RemoteLogQuota
from ottla.broker.storage.tiered.remote_log_tasks import RemoteLogTasks
from ottla.broker.storage.tiered.remote_partition_metadata_store import TopicIdPartition
from ottla.broker.storage.tiered.remote_storage import RemoteStorage, RemoteStorageError
from ottla.broker.storage.tiered.remote_thread_pool import RemoteThreadPool
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges, RemoteTopicStats
from ottla.broker.storage.tiered.store_calls import StoreCalls
from ottla.env.env import Env
from ottla.jobs.supervision import supervise
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.tiered")
MAX_QUOTA_WAIT_MS = 1000
"""Time in ms after which a copy that waits for the quota checks it again (``RemoteLogManager.quotaTimeout``)."""


class RemoteTaskDependencies(NamedTuple):
    """Components of the broker that the tasks of all tiered partitions share."""

    env: Env
    broker_id: int
    metadata: TopicBasedRemoteLogMetadataManager
    storage: Callable[[], RemoteStorage]
    settings: Callable[[], RemoteLogManagerConfig]
    calls: StoreCalls
    copiers: RemoteThreadPool
    expirers: RemoteThreadPool
    copy_quota: RemoteLogQuota
    stats: Callable[[str], RemoteTopicStats]
    """Function that returns the counters of a topic."""
    persist_log_start: Callable[[PartitionLog], Awaitable[None]]
    """Function that writes the log start offset of a log to its checkpoint."""
    fail: DiskErrorHandler


class RemotePartitionTasks:
    """Tasks of one partition while this broker leads it; each promotion from follower to leader has its own object."""

    def __init__(self, around: RemoteTaskDependencies, replica: HostedPartition) -> None:
        self._around = around
        self.replica = replica
        self.key: TopicIdPartition = replica.topic_id, replica.partition
        self.gauges = RemotePartitionGauges()
        self._scope = trio.CancelScope()
        self._log: PartitionLog | None = None
        self._tasks: RemoteLogTasks | None = None
        self._finished = trio.Event()

    def cancel(self) -> None:
        """Cancel the tasks; do not wait for them: a call of the store that is in progress ends first."""
        if self._tasks is not None:
            self._tasks.is_cancelled = True
        self._scope.cancel()

    async def run(self) -> None:
        """Run copies and expiration every ``remote.log.manager.task.interval.ms`` until cancelled.

        They start once the metadata of the remote segments is loaded.
        """
        try:
            with self._scope:
                cache = await self._around.metadata.wait_ready(self.key)
                if cache is not None:
                    await self._run_tasks(cache)
        finally:
            self._finished.set()

    async def _run_tasks(self, cache: RemoteLogMetadataCache) -> None:
        around = self._around
        async with trio.open_nursery() as nursery:
            for name, pool, work in (
                ("copies to the remote store", around.copiers, RemoteLogTasks.copy_segments),
                ("expiration of remote segments", around.expirers, self._expire),
            ):
                nursery.start_soon(supervise, around.env, name, partial(self._repeat, cache, pool, work))

    async def _repeat(
        self,
        cache: RemoteLogMetadataCache,
        pool: RemoteThreadPool,
        work: Callable[[RemoteLogTasks], Awaitable[int]],
    ) -> None:
        while True:
            async with pool.limiter:
                await self._run_round(cache, work)
            await self._around.env.sleep(self._around.settings().task_interval_ms / 1000)

    async def _run_round(self, cache: RemoteLogMetadataCache, work: Callable[[RemoteLogTasks], Awaitable[int]]) -> None:
        """Run one round of a task and update the gauges; errors are logged, and the next round repeats what failed.

        An error of the epoch file is handled as a disk error of the log. No effect while the log is closed.
        """
        log = self.replica.log
        if log.closed:
            return
        try:
            tasks = self._tasks_of(log, cache)
        except OSError as error:
            self._around.fail(error, log)
            return
        try:
            await work(tasks)
        except (RemoteStorageError, OSError) as error:  # a local segment may be deleted during its copy
            logger.warning("Tiered storage of %s failed, retrying with the next run: %s", log.label, error)
        await run_in_background(self._around.env, tasks.measure_job(self._around.env.monotonic_ms()))

    def _tasks_of(self, log: PartitionLog, cache: RemoteLogMetadataCache) -> RemoteLogTasks:
        """Return the tasks of the current log; create them for a new log, after the begin of leadership or a move.

        Then the log start offset and the highest remote offset of the log are raised (`RemoteLogTasks.on_leadership`).

        Raises:
            OSError: The epoch file could not be written.
        """
        if self._tasks is None or self._log is not log:
            tasks = self._create_tasks(log, cache)
            tasks.on_leadership()
            self._tasks, self._log = tasks, log
        return self._tasks

    def _create_tasks(self, log: PartitionLog, cache: RemoteLogMetadataCache) -> RemoteLogTasks:
        around = self._around
        return RemoteLogTasks(
            around.env,
            around.broker_id,
            log,
            cache,
            around.metadata,
            around.storage(),
            around.calls.run,
            around.settings().custom_metadata_max_bytes,
            self._wait_for_quota,
            around.stats(log.topic),
            self.gauges,
        )

    async def _wait_for_quota(self, size_bytes: int) -> None:
        around = self._around
        while (throttle_ms := around.copy_quota.throttle_ms()) > 0:
            await around.env.sleep(min(throttle_ms, MAX_QUOTA_WAIT_MS) / 1000)
        around.copy_quota.record(size_bytes)

    async def _expire(self, tasks: RemoteLogTasks) -> int:
        log = tasks.log
        start = log.log_start_offset
        deleted = await tasks.expire_segments(partial(self._around.persist_log_start, log))
        if log.log_start_offset != start:
            self.replica.notify_waiters()
        return deleted

    # ------------------------------------------------------------------ deletion

    async def delete_all(self) -> None:
        """Wait for the end of the cancelled tasks, then delete all remote segments of the partition.

        Failures are repeated until all segments are deleted, or the node stops.
        """
        around = self._around
        await self._finished.wait()
        cache = await around.metadata.wait_ready(self.key)
        if cache is None:
            return
        log = self.replica.log
        tasks = self._create_tasks(log, cache)
        while True:
            async with around.expirers.limiter:
                try:
                    await tasks.delete_all_segments()
                except RemoteStorageError as error:
                    logger.warning("Deleting the remote segments of %s failed, retrying: %s", log.label, error)
                else:
                    return
            await around.env.sleep(around.settings().task_interval_ms / 1000)
