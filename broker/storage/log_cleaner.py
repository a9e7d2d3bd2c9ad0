"""Log cleaner: compacts the dirtiest log in a child process, while reads and appends continue.

Plans are made and segments are replaced on the event loop; reading and copying run in the child process.

Source: ``LogCleaner.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.env.disk import is_transient
from ottla.env.env import ChildDied, Env, ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.cleaner.log_to_clean import LogToClean, find_log_to_clean, plan_compaction, select_dirtiest_log
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from ottla.log.cleaner.compaction import CleanerStats, CompactionResult
    from ottla.log.cleaner.segment_swap import SegmentSwap

logger = logging.getLogger("ottla.cleaner")
RETRY_S = 1.0


class LogCleaner:
    """Log cleaner of the node: compacts one log at a time, the dirtiest first."""

    def __init__(
        self,
        env: Env,
        storage: LogDirs,
        setting: Callable[[str], str],
        fail: DiskErrorHandler,
    ) -> None:
        self._env = env
        self._log_dirs = storage
        self._setting = setting
        self._fail = fail
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        """Logs on which a pass failed (`clean_dirtiest`); not compacted until the next start, as in Kafka."""
        self._warned_offsets: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()
        """Offset of the last oversized batch that was logged, by log."""
        self.passes = self.bytes_read = self.bytes_written = 0

    @property
    def uncleanable_count(self) -> int:
        """Number of logs that are not compacted any more, as a pass failed on them since the start of the node."""
        return len(self._uncleanable)

    async def run(self) -> None:
        """Compact logs while any is dirty enough, with a check every ``log.cleaner.backoff.ms``, until cancelled."""
        while True:
            await self._env.sleep(int(self._setting("log.cleaner.backoff.ms")) / 1000)
            while await self.clean_dirtiest():
                pass

    def _dirtiest(self) -> Job[LogToClean | None]:
        """Return the dirtiest log to compact, as a job; None if no log is dirty enough.

        The state of the log is read again at the end of the selection.
        """
        every: list[LogToClean] = []
        for log in self._log_dirs.logs():
            found = None if log in self._uncleanable else find_log_to_clean(log, self._env.now_ms())
            if found is not None:
                every.append(found)
            yield None
        most = select_dirtiest_log(every)
        return None if most is None else find_log_to_clean(most.log, self._env.now_ms())

    async def clean_dirtiest(self) -> bool:
        """Compact the dirtiest log; return True if it was compacted.

        False if no log is dirty enough, the pass failed, or its result was discarded because the log was truncated,
        closed or got a future log meanwhile. If a pass fails before segments are replaced (unreadable records, a disk
        error that is not transient, the end of the child process), the log becomes uncleanable, unless it changed
        meanwhile. An I/O error while segments are replaced is passed to ``fail``.
        """
        found = await run_in_background(self._env, self._dirtiest())
        if found is None:
            return False
        # lazy: 3.6 ms, 137 kB: only with a log to compact
        from ottla.broker.storage.throttled_compaction import ThrottledCompaction, run_compaction
        from ottla.log.cleaner.compaction import delete_unfinished_files

        log, cuts = found.log, found.log.truncations
        try:
            plan = plan_compaction(found, self._env.now_ms(), int(self._setting("log.cleaner.dedupe.buffer.size")))
        except ProtocolError as error:
            logger.error(
                "Unable to clean log %s-%d, marking its partition as uncleanable: %s", log.topic, log.partition, error
            )
            self._uncleanable.add(log)
            return False
        try:
            rate = float(self._setting("log.cleaner.io.max.bytes.per.second"))
            outcome = await self._env.in_process(run_compaction, ThrottledCompaction(plan, rate))
        except (WireError, OSError, ChildDied) as error:
            passing = isinstance(error, OSError) and is_transient(error)
            unchanged = (
                not log.closed
                and log.truncations == cuts
                and log.segments.base_offsets[: len(plan.base_offsets)] == plan.base_offsets
            )
            if unchanged and not passing:
                logger.error(
                    "Unable to clean log %s-%d, marking its partition as uncleanable: %s",
                    log.topic,
                    log.partition,
                    error,
                )
                self._uncleanable.add(log)
            return False  # otherwise retention or a deletion removed a segment meanwhile: retried later
        try:
            if log.closed or log.has_future_log or log.truncations != cuts:
                delete_unfinished_files(log.disk, log.directory)
                return False
            return await self._replace_segments(found, outcome)
        except OSError as error:
            self._fail(error, log)
            return False

    async def _sync_names(self, work: SegmentSwap) -> None:
        """Sync the directory of a log after renames, in a thread; retry transient errors. Raises OSError for others."""
        await self._retry_while_short(lambda: self._env.in_thread(work.sync_directory, ThreadPool.SYNC))

    async def _write_checkpoint(self, log: PartitionLog) -> None:
        """Write and sync the cleaner offset checkpoint of the log's directory; retry transient errors.

        Raises:
            OSError: any other error.
        """
        # lazy: 0.7 ms, 11 kB
        from ottla.broker.storage.cleaner_checkpoint_writer import write_cleaner_checkpoint

        await self._retry_while_short(
            lambda: write_cleaner_checkpoint(self._env, self._log_dirs, self._log_dirs.directory_of(log))
        )

    async def _retry_while_short(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Await a disk operation; repeat it every `RETRY_S` while its error is transient (no descriptors or memory).

        Raises:
            OSError: any other error.
        """
        while True:
            try:
                return await wait()
            except OSError as error:
                if not is_transient(error):
                    raise
                await self._env.sleep(RETRY_S)

    async def _replace_segments(self, found: LogToClean, outcome: CompactionResult) -> bool:
        """Replace segments by the compacted ones, checkpoint the cleaner offset and count the pass; return True.

        Return False, with the compacted files deleted, if the log changed meanwhile or descriptors or memory are short.
        """
        # lazy: 3.5 ms, 135 kB
        from ottla.log.cleaner.compaction import delete_unfinished_files
        from ottla.log.cleaner.segment_swap import SegmentSwap

        log, stats = found.log, outcome.stats
        work = SegmentSwap(log, outcome.cleaned)
        try:
            taken = work.add_swap_suffix()
            if taken:
                await self._sync_names(work)
                taken = not log.has_future_log and work.replace_segments(self._env.now_ms())
        except OSError as error:
            if not is_transient(error):
                raise
            taken = False  # retried by the next pass
        if not taken:
            delete_unfinished_files(log.disk, log.directory)
            return False
        if work.removes_base_offsets:
            await self._sync_names(work)
        log.raise_cleaner_offset(max(outcome.end, found.first_dirty_offset))
        # before the suffix is removed: an unrecorded gap would be reported as lost records
        await self._write_checkpoint(log)
        work.remove_swap_suffix()
        names = log.start_flush(log.recovery_point)
        await self._env.in_thread(names, ThreadPool.SYNC)
        log.complete_flush(names)
        self.passes += 1
        self.bytes_read += stats.bytes_read
        self.bytes_written += stats.bytes_written
        logger.info(
            "Log cleaner cleaned log %s-%d up to offset %d: %d of %d records retained, %d of %d bytes, %d keys",
            *(log.topic, log.partition, log.cleaner_offset, stats.records_kept, stats.records_read),
            *(stats.bytes_written, stats.bytes_read, stats.keys),
        )
        self._warn_uncleaned_batches(log, stats)
        return True

    def _warn_uncleaned_batches(self, log: PartitionLog, stats: CleanerStats) -> None:
        """Log a warning about batches too large to compact, unless the last one in the log was warned about before.

        The warning has the number of all of them, and the offset of the last one.
        """
        if stats.last_oversized_offset <= self._warned_offsets.get(log, -1):
            return
        self._warned_offsets[log] = stats.last_oversized_offset
        logger.warning(
            "Batches too large to clean in %s-%d: %d, the last one at offset %d, exceed %d bytes uncompressed; they "
            "and the tombstones after the first one are retained",
            *(log.topic, log.partition, stats.oversized_batches, stats.last_oversized_offset, MAX_DECOMPRESSED_BYTES),
        )
