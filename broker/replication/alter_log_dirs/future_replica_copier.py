"""Copy of current logs to future logs in other log directories, and promotion of the complete ones.

A future log is filled from the current log in chunks. As many are copied at once, in turns, as there are log
directories; further moves start in the order of their names. Once a future log is complete the controller is informed
of its directory; once that is committed, the future log replaces the current log between two requests.

Source: ``ReplicaManager.alterReplicaLogDirs``, ``ReplicaAlterLogDirsThread.scala``, ``LocalLeaderEndPoint.scala``,
``Partition.maybeReplaceCurrentWithFutureReplica`` (apache/kafka 4.3.1; KIP-113, KIP-858).
"""

from __future__ import annotations

import logging

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replication.alter_log_dirs.move_scheduler import LogDirMove, MoveScheduler
from ottla.broker.replication.alter_log_dirs.promotion import PromotionStep, next_promotion_step
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.cleaner_checkpoint_writer import write_cleaner_checkpoint
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.directory_id import directory_id_of
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import FOREVER_S, Env, ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.future_log import (
    append_missing,
    follow_offsets,
    missing_data_error,
    read_missing,
    replace_current_with_future_log,
    skip_compacted_tail,
    truncate_to_common,
)
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ProtocolError, WireError

logger = logging.getLogger("ottla.moves")
ALTER_LOG_DIRS_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
COPY_CHUNK_BYTES = 256 * 1024
"""Maximum bytes of a chunk (less if ``replica.fetch.max.bytes`` is): copied in under 2 ms of the event loop."""
FLUSH_INTERVAL_BYTES = 16 * 1024 * 1024
"""Bytes copied between two syncs of a future log, so that the last sync before the promotion is short."""
QUOTA_RETRY_MS = 100
"""Delay of a move whose copy quota is exceeded."""
RETRY_MS = 1000
SWAP_RETRY_MS = 1
SWAP_ATTEMPTS = 3
MAX_IDLE_S = 1.0


class FutureReplicaCopier:
    """Task that executes all moves between log directories of this node: copies, requests assignments, promotes."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: LogDirs,
        replicas: ReplicaManager,
        fail: DiskErrorHandler,
    ) -> None:
        self._env = env
        self._node_id = config.node_id
        self._chunk_bytes = min(config.number("replica.fetch.max.bytes"), COPY_CHUNK_BYTES)
        self._log_dirs = storage
        self._replica_manager = replicas
        self._fail = fail
        self._scheduler = MoveScheduler()
        self._quota = ReplicationQuota("alter log dirs", config.node_id, ALTER_LOG_DIRS_RATE_KEY)
        self._wakeup = trio.Event()

    def __len__(self) -> int:
        return len(self._scheduler)

    def start_copy(self, replica: HostedPartition) -> None:
        """Start to copy a partition's log to its existing future log, in the task of `run`; do not wait for it.

        Compaction of the log is suspended meanwhile.
        """
        replica.log.set_has_future_log(begins=True)
        move = LogDirMove(replica, self._replica_manager.future_logs[replica.topic, replica.partition])
        self._scheduler.add(move)
        self._wakeup.set()

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Process a metadata publication: wake the moves in ``delta`` whose directory assignment the image now has."""
        for move in self._scheduler.moves_awaiting_assignment(delta):
            if self._is_directory_assigned(move):
                self._scheduler.wake(move)
                self._wakeup.set()

    async def run(self) -> None:
        """Execute the steps of all moves, one at a time, until cancelled; a move whose step fails is retried later."""
        while True:
            self._wakeup = trio.Event()
            move = await run_in_background(self._env, self._next_move())
            if move is None:
                with self._env.timeout(self._idle_s()):
                    await self._wakeup.wait()
                continue
            try:
                await self._step(move)
            except (ProtocolError, WireError) as error:
                if not move.is_error_logged:
                    logger.error(
                        "Error while copying partition to its future log: %s: %s", move.current_log.describe(), error
                    )
                move.is_error_logged = move.is_blocked = True
                self._delay(move, RETRY_MS)
            except OSError as error:
                self._on_disk_error(move, error, move.current_log)
            self._scheduler.reschedule(move)
            await trio.lowlevel.checkpoint()

    def _next_move(self) -> Job[LogDirMove | None]:
        """Remove cancelled moves from the scheduler and return the next ready move, or None, as a job.

        The caller executes a step and calls `MoveScheduler.reschedule`; before that the move is in no queue.
        The job yields for each removed move, since the deletion of a topic may cancel very many at once.
        """
        most = len(self._log_dirs.directories)
        while (move := self._scheduler.next_ready(self._env.monotonic_ms(), most)) is not None:
            if self._is_active(move):
                return move
            self._scheduler.remove(move)
            yield None
        return None

    def _idle_s(self) -> float:
        """Return the seconds until the next move is due, at most `MAX_IDLE_S`; infinite without moves."""
        if not len(self._scheduler):
            return FOREVER_S
        return min(max(self._scheduler.next_due_ms() - self._env.monotonic_ms(), 1) / 1000, MAX_IDLE_S)

    def _delay(self, move: LogDirMove, by_ms: float) -> None:
        move.not_before_ms = self._env.monotonic_ms() + by_ms

    def _is_active(self, move: LogDirMove) -> bool:
        """Return True if the move is not cancelled: partition and future log are the same, and both logs are open."""
        return (
            self._replica_manager.get(*move.topic_partition) is move.replica
            and self._replica_manager.future_logs.get(move.topic_partition) is move.future_log
            and not move.current_log.closed
            and not move.future_log.closed
        )

    def _is_directory_assigned(self, move: LogDirMove) -> bool:
        """Return True if the image assigns the replica to the future log's directory."""
        topic = self._replica_manager.image.topics.get(move.replica.topic)
        registration = None if topic is None else topic.partitions.get(move.replica.partition)
        return (
            registration is not None
            and directory_id_of(registration, self._node_id) == self._log_dirs.directory_of(move.future_log).id
        )

    async def _step(self, move: LogDirMove) -> None:
        """Execute the next step of a move (`PromotionStep`), after the future log was aligned with the current one.

        Raises:
            ProtocolError, WireError: the current log is corrupt.
            OSError: the current log cannot be read.
        """
        if not self._align(move):
            return
        since_assignment_ms = self._env.monotonic_ms() - move.assignment_sent_ms
        match next_promotion_step(
            near=self._is_nearly_caught_up(move),
            is_assigned=self._is_directory_assigned(move),
            since_assignment_ms=since_assignment_ms,
        ):
            case PromotionStep.COPY:
                await self._copy_chunk(move)
            case PromotionStep.REQUEST_ASSIGNMENT:
                await self._request_assignment(move)
            case PromotionStep.WAIT:
                self._delay(move, RETRY_MS)
            case PromotionStep.SWAP:
                await self._promote(move)

    def _is_nearly_caught_up(self, move: LogDirMove) -> bool:
        current, end = move.current_log, move.future_log.log_end_offset
        left = current.bytes_between(end, current.log_end_offset)
        return left is not None and left <= self._chunk_bytes

    def _align(self, move: LogDirMove) -> bool:
        """Truncate the future log where it diverges from the current one; copy configuration and log start offset.

        Return False after a disk error, which was handled; otherwise True.
        """
        current, future = move.current_log, move.future_log
        if future.config is not current.config:
            future.update_config(current.config)
        try:
            truncate_to_common(
                future, current, self._env.now_ms(), was_cut=move.aligned_truncations != current.truncations
            )
            follow_offsets(future, current, self._env.now_ms())
        except OSError as error:
            self._on_disk_error(move, error, future)
            return False
        move.aligned_truncations = current.truncations
        return True

    def _on_disk_error(self, move: LogDirMove, error: OSError, log: PartitionLog) -> None:
        """Report a disk error of ``log``, which may take its directory offline and cancel the move; delay the retry."""
        move.is_blocked = True
        self._delay(move, RETRY_MS)
        self._fail(error, log)

    async def _copy_chunk(self, move: LogDirMove) -> None:
        """Copy a chunk to the future log, or delay the move if the node's alter-log-dirs quota is exceeded.

        The chunk is read in a thread, and discarded if the move is cancelled or the current log truncated meanwhile.

        Raises:
            ProtocolError, WireError: the current log is corrupt.
        """
        if self._quota.is_exceeded(self._replica_manager.image, self._env.monotonic_ms()):
            self._delay(move, QUOTA_RETRY_MS)
            return
        current, cuts = move.current_log, move.aligned_truncations
        try:
            piece = read_missing(move.future_log, current, self._chunk_bytes)
            raw = b"" if piece is None else await self._env.in_thread(piece.read, ThreadPool.FILES)
        except OSError as error:
            self._on_disk_error(move, error, current)
            return
        if not self._is_active(move) or move.current_log is not current or cuts != current.truncations:
            return
        if not raw:
            raise missing_data_error(move.future_log, current)  # file truncated by another process
        if self._append_chunk(move, raw) and move.unflushed_bytes >= FLUSH_INTERVAL_BYTES:
            await self._flush(move)

    def _append_chunk(self, move: LogDirMove, raw: bytes) -> bool:
        """Append a chunk to the future log and count it for the quota; return False after a handled disk error."""
        self._quota.record(len(raw), self._env.monotonic_ms())
        move.unflushed_bytes += len(raw)
        try:
            append_missing(move.future_log, move.current_log, raw, self._env.now_ms())
        except OSError as error:
            self._on_disk_error(move, error, move.future_log)
            return False
        move.is_blocked = False
        return True

    async def _flush(self, move: LogDirMove) -> bool:
        """Sync the future log in a thread and return True; False if the move was cancelled or the disk failed."""
        future = move.future_log
        try:
            job = future.start_flush(future.log_end_offset)
            await self._env.in_thread(job, ThreadPool.SYNC)
            future.complete_flush(job)
        except OSError as error:
            self._on_disk_error(move, error, future)
            return False
        move.unflushed_bytes = 0
        if not self._is_active(move):
            return False
        future.close_idle_files()
        return True

    async def _checkpoint_cleaner_offset(self, move: LogDirMove) -> bool:
        """Checkpoint the cleaner offset of the future log and return True; False if cancelled or if a write failed."""
        here = self._log_dirs.directory_of(move.future_log)
        # a truncation or restart of the future log lowers its cleaner offset
        move.future_log.raise_cleaner_offset(move.current_log.cleaner_offset)
        if here.checkpoints.is_cleaner_offset_synced(move.future_log):
            return True
        try:
            await write_cleaner_checkpoint(self._env, self._log_dirs, here)
        except OSError as error:
            self._on_disk_error(move, error, move.future_log)
            return False
        return self._is_active(move)

    async def _request_assignment(self, move: LogDirMove) -> None:
        """Copy the remaining records and sync the future log; then report its directory to the controller.

        The report is AssignReplicasToDirs. If the future log does not catch up, nothing is reported.

        Raises:
            ProtocolError, WireError: the current log is corrupt. OSError: it cannot be read.
        """
        if self._catch_up(move) and await self._flush(move) and await self._checkpoint_cleaner_offset(move):
            move.assignment_sent_ms = self._env.monotonic_ms()
            self._delay(move, RETRY_MS)
            place = self._log_dirs.directory_of(move.future_log).id
            self._replica_manager.on_directory_changed(move.replica.topic_id, move.replica.partition, place)

    async def _promote(self, move: LogDirMove) -> None:
        """Replace the current log by the future log, if it catches up within `SWAP_ATTEMPTS` syncs; else retry later.

        Meanwhile the high watermark waits for syncs of the future log, where it waits for syncs at all: otherwise the
        current log would always be ahead.

        Raises:
            ProtocolError, WireError: the current log is corrupt. OSError: it cannot be read.
        """
        current, future = move.current_log, move.future_log
        current.set_being_replaced(begins=True)
        self._delay(move, SWAP_RETRY_MS)
        here = self._log_dirs.directory_of(future)
        is_offset_synced = here.checkpoints.is_cleaner_offset_synced
        try:
            for _ in range(SWAP_ATTEMPTS):
                if not (
                    self._catch_up(move) and await self._flush(move) and await self._checkpoint_cleaner_offset(move)
                ):
                    return
                if not self._catch_up(move):
                    return
                if future.recovery_point >= current.recovery_point and is_offset_synced(future):
                    self._swap(move)
                    break
        finally:
            current.set_being_replaced(begins=False)
        if move.current_log is future:
            await self._persist_swap(self._log_dirs.directory_of(current), here)

    def _catch_up(self, move: LogDirMove) -> bool:
        """Copy the remaining records without yielding; return True if the future log is complete.

        Return False if more than a chunk is missing, the move was cancelled, or after a handled disk error.

        Raises:
            ProtocolError, WireError: the current log is corrupt.
            OSError: the missing bytes of the current log cannot be counted.
        """
        if not self._align(move) or not self._is_nearly_caught_up(move):
            return False
        current, future = move.current_log, move.future_log
        while future.log_end_offset < current.log_end_offset:
            try:
                piece = read_missing(future, current, self._chunk_bytes)
                raw = b"" if piece is None else piece.read()
            except OSError as error:
                self._on_disk_error(move, error, current)
                return False
            if not raw:
                if not self._close_gap(move):
                    return False
            elif not (self._append_chunk(move, raw) and self._is_active(move)):
                return False
        return True

    def _close_gap(self, move: LogDirMove) -> bool:
        """Advance the end of the future log over a gap that compaction left at the end of the current log; return True.

        Return False after a disk error, which was handled.

        Raises:
            ProtocolError: records are missing for another reason.
        """
        try:
            skip_compacted_tail(move.future_log, move.current_log, self._env.now_ms())
        except OSError as error:
            self._on_disk_error(move, error, move.future_log)
            return False
        return True

    def _swap(self, move: LogDirMove) -> None:
        """Replace the current log by the future log without yielding; checkpoints move to the new directory.

        After a disk error, which is handled, the current log stays.
        """
        current, future = move.current_log, move.future_log
        here = self._log_dirs.directory_of(future)
        try:
            replace_current_with_future_log(here, future, current, self._env.now_ms())
        except OSError as error:
            self._on_disk_error(move, error, future)
            return
        self._replica_manager.promote_future_log(move.replica, future)
        logger.info("Replaced the log of %s with its future log in log dir %s", future.label, here.path)

    async def _persist_swap(self, there: LogDirectory, here: LogDirectory) -> None:
        """Sync the directory names and log start offset checkpoints of both directories after a swap.

        ``here`` is the new directory of the log, ``there`` the former one: its cleaner checkpoint is rewritten without
        the log at last. A disk error is passed to ``fail``; offline directories are skipped.
        """
        for directory in (here, there):
            if directory.path in self._log_dirs.offline:
                continue
            try:
                log_starts = directory.checkpoints.log_starts
                log_starts.complete_sync(await self._env.in_thread(log_starts.prepare_sync(), ThreadPool.SYNC))
                if directory is there:
                    await write_cleaner_checkpoint(self._env, self._log_dirs, directory)
            except OSError as error:
                self._fail(error, directory)
