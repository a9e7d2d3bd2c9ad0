"""Background maintenance of logs: syncs of rolled segments, checkpoints, and retention.

As in Kafka, an acknowledgement does not wait for the disk, unless ``flush.messages`` is set; a segment is synced once
it is rolled, the rest by the operating system, or after ``flush.ms``. Recovery after a crash starts at the recovery
point.

Source: ``UnifiedLog.roll`` and ``LogManager`` checkpoints (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakKeyDictionary

from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.env.disk import is_transient
from ottla.env.env import Env, ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import increment_log_start_by_retention, log_start_after_retention
from ottla.log.segment.log_segments import remove_files

CHECKPOINT_INTERVAL_S = 5.0
INITIAL_RETENTION_DELAY_S = 30.0
RETRY_S = 0.2
REPLACEMENT_RETRY_S = 0.005
"""Delay in seconds of a flush while the log is being replaced by its future log."""
logger = logging.getLogger("ottla.files")


class LogMaintenance:
    """Maintenance of all logs: rolled segments and checkpoints every 5 s, retention, requested flushes."""

    def __init__(
        self,
        env: Env,
        storage: LogDirs,
        retention_every_ms: int,
        producer_expiration_ms: int,
        fail: DiskErrorHandler,
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._retention_every_ms = retention_every_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._env = env
        self._log_dirs = storage
        self._fail = fail
        self._start = start
        self.on_flushed: list[Callable[[HostedPartition], None]] = []
        self._last_sync_ms: WeakKeyDictionary[PartitionLog, float] = WeakKeyDictionary()

    async def run_retention(self) -> None:
        """Apply retention and expire idle producer ids every ``log.retention.check.interval.ms``, until cancelled.

        The first time is after that interval, or after `INITIAL_RETENTION_DELAY_S` if this is less.
        """
        every_s = self._retention_every_ms / 1000
        await self._env.sleep(min(INITIAL_RETENTION_DELAY_S, every_s))
        while True:
            await run_in_background(self._env, self.apply_retention())
            await self._env.sleep(every_s)

    async def run(self) -> None:
        """Flush rolled segments, close files and write checkpoints every `CHECKPOINT_INTERVAL_S`, until cancelled.

        Active segments are flushed only if ``flush.ms`` is due or the log is idle; deleted segments' files are removed.
        """
        while True:
            await self._env.sleep(CHECKPOINT_INTERVAL_S)
            await run_in_background(self._env, self._maintain_all())

    def _maintain_all(self) -> Job[None]:
        for log in self._log_dirs.logs():
            try:
                yield from self._maintain(log)
            except OSError as error:
                self._fail(error, log)
                if is_transient(error):
                    break  # the shortage affects all logs; retried in the next round
            yield None
        for directory in self._log_dirs.online:
            yield from self._checkpoint(directory)

    def _maintain(self, log: PartitionLog) -> Job[None]:
        """Flush rolled segments, and logs due by ``flush.ms`` or idle; delete due files, close idle files; as a job."""
        if log.closed or log.is_being_replaced:
            return
        due = self._last_sync_ms.get(log, 0) + log.config.flush_ms <= self._env.monotonic_ms()
        end = log.log_end_offset if due or log.is_idle else log.segments.active.base_offset
        if log.recovery_point < end:
            yield self._sync_below(log, end)
            self._last_sync_ms[log] = self._env.monotonic_ms()
        gone = [] if log.closed else log.segments.pop_deletable_files(self._env.now_ms())
        if gone:  # the file system takes long to free the blocks of large files
            yield self._env.in_thread(partial(remove_files, log.disk, gone), ThreadPool.REMOVAL)
        if not log.closed:
            log.close_idle_files()

    def request_flush(self, replica: HostedPartition) -> None:
        """Start a flush of a replica's log, in a task, after ``flush.messages`` records; acknowledgements wait for it.

        Records appended during the flush share the next one.
        """
        if not replica.is_flushing:
            replica.is_flushing = True
            self._start(partial(self._flush, replica))

    async def _flush(self, replica: HostedPartition) -> None:
        while not (log := replica.log).closed:
            if log.is_being_replaced:
                await self._env.sleep(REPLACEMENT_RETRY_S)
                continue
            end = log.log_end_offset
            try:
                durable = await self._sync_below(log, end)
            except OSError as error:
                self._fail(error, log)
                # a shortage of resources is retried; after other errors the log is closed
                await self._env.sleep(RETRY_S)
                continue
            if replica.log is not log:
                continue  # replaced by its future log: the flush was of the former files
            replica.on_flushed(durable, self._env.now_ms())
            for callback in self.on_flushed:
                callback(replica)
            if durable >= log.log_end_offset:  # after a truncation during the flush, later records are not flushed
                break
        replica.is_flushing = False

    def apply_retention(self) -> Job[None]:
        """Apply retention to the logs of online directories, except future logs; expire idle producer ids; as a job.

        The log start offsets are advanced and checkpointed before the segments below them are deleted: nothing is
        deleted in a directory whose checkpoint fails. An I/O error is passed to ``fail``; the other logs are continued
        with.
        """
        for directory in self._log_dirs.online:
            due = []
            for log in [x for x in directory.logs.values() if not x.is_future]:
                yield from log.producers.expire_job(self._env.now_ms(), self._producer_expiration_ms)
                try:
                    start = None if log.closed else log_start_after_retention(log, self._env.now_ms())
                    if start is not None:
                        if increment_log_start_by_retention(log, start):
                            logger.info(
                                "Incremented %s of partition %s-%d to %d",
                                "local log start offset" if log.config.tiering.has_copies else "log start offset",
                                *(log.topic, log.partition, start),
                            )
                        due.append(log)  # also if the leader, or remote retention, had advanced it before
                except OSError as error:
                    self._fail(error, log)
                yield None
            if due and (yield from self._checkpoint(directory)):
                yield from self._delete_segments(due)

    def _delete_segments(self, due: list[PartitionLog]) -> Job[None]:
        for log in due:
            try:
                yield from log.delete_segments_below_start_job(self._env.now_ms())
            except OSError as error:
                self._fail(error, log)
            yield None

    async def _sync_below(self, log: PartitionLog, end: int) -> int:
        """Flush the log below offset ``end`` in a thread; return the new recovery point, which may be below ``end``."""
        job = log.start_flush(end)
        await self._env.in_thread(job, ThreadPool.SYNC)
        return log.complete_flush(job)

    def _checkpoint(self, directory: LogDirectory) -> Job[bool]:
        """Write and sync a directory's changed checkpoints, as a job; return False after a handled disk error."""
        checkpoints = directory.checkpoints
        try:
            yield from checkpoints.write_job()
            if checkpoints.has_unsynced_files:
                checkpoints.complete_sync((yield self._env.in_thread(checkpoints.prepare_sync(), ThreadPool.SYNC)))
        except OSError as error:
            self._fail(error, directory)
            return False
        return True
