"""Offset checkpoints of a log directory: recovery points, log start offsets, high watermarks, cleaner offsets.

Logs are appended to, truncated and removed while `CheckpointStore.write_job` yields. A file must never contain a
recovery point or high watermark above a truncation, a log start offset below records that were deleted, or an entry of
a removed log. `CheckpointStore` alone tracks the contents of the files, and which of them are durable.

Source: ``LogManager.checkpointRecoveryOffsetsInDir``, ``checkpointLogStartOffsetsInDir`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.env.disk import Disk, sync_file
from ottla.log.checkpoints.checkpoint_files import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
    read_offsets,
    write_entries,
)
from ottla.log.checkpoints.cleaner_offset_checkpoint import CleanerOffsetCheckpoint
from ottla.log.checkpoints.log_start_offset_checkpoint import LogStartOffsetCheckpoint
from ottla.log.file_names import TopicPartition
from ottla.log.partition_log import PartitionLog

LOGS_PER_STEP = 100


class CheckpointedOffsets(NamedTuple):
    """Offsets of one log for the checkpoint files: recovery point, log start offset, high watermark."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    has_log_start_entry: bool
    """True if the log start offset is checkpointed: it lies within a segment, or may lie in the remote store."""


class CheckpointEntries(NamedTuple):
    """Entry lines of one log for the checkpoint files; empty if the log has no entry in a file."""

    recovery_point: str
    log_start_offset: str
    high_watermark: str


def offsets_to_checkpoint(log: PartitionLog) -> CheckpointedOffsets:
    """Return the current offsets of a log for the checkpoint files; nothing is written."""
    start = log.log_start_offset
    has_entry = start > log.segments.base_offsets[0] or (log.config.tiering.is_enabled and start > 0)
    return CheckpointedOffsets(log.recovery_point, start, log.high_watermark, has_entry)


def _format_lines(log: PartitionLog, offsets: CheckpointedOffsets) -> CheckpointEntries:
    at = f"{log.topic} {log.partition}"
    start = f"{at} {offsets.log_start_offset}" if offsets.has_log_start_entry else ""
    return CheckpointEntries(f"{at} {offsets.recovery_point}", start, f"{at} {offsets.high_watermark}")


class CheckpointStore:
    """Owner of the checkpoint files of a log directory, with the offsets of the partition logs ``logs``."""

    def __init__(self, disk: Disk, directory: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self.log_starts = LogStartOffsetCheckpoint(disk, directory)
        self.cleaner = CleanerOffsetCheckpoint(disk, directory)
        self.loaded_recovery_points: dict[TopicPartition, int] = {}
        """Recovery points in the checkpoint file at start, by partition."""
        self.loaded_high_watermarks: dict[TopicPartition, int] = {}
        """High watermarks in the checkpoint file at start, by partition."""
        self._bounds: dict[TopicPartition, int] = {}
        """By partition, the largest recovery point or log start offset that a file may have after a power failure."""
        self._written: dict[PartitionLog, CheckpointedOffsets] = {}
        """Offsets that `write_job` wrote last, by log."""
        self._has_unsynced_files = False

    # ------------------------------------------------------------------ start

    def load(self, has_logs: Callable[[], bool]) -> None:
        """Read the checkpoint files at start; a corrupt one counts as missing, without an error.

        Without recovery points every log that was not closed cleanly is recovered from its start.

        Raises:
            OSError: the disk failed.
        """
        self.loaded_recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self.log_starts.load()
        self.loaded_high_watermarks = self._read(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaner.load(has_logs)
        points, starts = self.loaded_recovery_points, self.log_starts.offsets
        self._bounds = {at: max(points.get(at, 0), starts.get(at, 0)) for at in {*starts, *points}}

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, f"{self._directory}/{name}")
        except CorruptFile:
            return {}

    def forget_recovery_points(self) -> None:
        """Discard the loaded recovery points, so that recovery reads every batch of every log."""
        self.loaded_recovery_points.clear()

    # ------------------------------------------------------------------ writes

    def prepare_new_log(self, topic_partition: TopicPartition) -> None:
        """Remove entries of a deleted partition of this name from the checkpoints, before a new partition is added.

        Waits for a sync of the log start and cleaner offset files; without the other two files every log would only be
        recovered. The renames become durable when the new partition's directory name is synced. No effect without
        entries.

        Raises:
            OSError: as `write`.
        """
        if (
            topic_partition in self._bounds
            or topic_partition in self.log_starts.backup_partitions
            or topic_partition in self.cleaner.offsets
        ):
            self.write(sync=False)

    def prepare_truncation(self, log: PartitionLog, offset: int) -> None:
        """Write and sync the checkpoints before a truncation to ``offset``, if one may have a higher offset of the log.

        The offsets of ``log`` are lowered already, its files are not truncated yet. After a power failure recovery
        would otherwise trust records appended after the truncation without reading them, or would accept a gap between
        them as compacted.

        Raises:
            OSError: as `write`.
        """
        at = (log.topic, log.partition)
        if max(self._bounds.get(at, 0), self.cleaner.offsets.get(at, 0)) > offset:
            self.write()
            self._bounds[at] = max(log.recovery_point, log.log_start_offset)
            if self._bounds[at] == 0:
                del self._bounds[at]

    def write(self, *, sync: bool = True) -> None:
        """Write the files of recovery points, log start offsets and high watermarks, and of cleaner offsets if changed.

        With ``sync`` it blocks until all are durable. Without it a power failure may leave each file's previous
        contents, and tear the files of recovery points and high watermarks; cleaner offsets are then not written,
        unless the file has an entry of a removed log.

        Raises:
            OSError: each file has its previous or the new contents, or only a backup exists.
        """
        logs = [log for _, log in sorted(self._logs.items())]
        lines = {log: _format_lines(log, offsets_to_checkpoint(log)) for log in logs}
        cleaned = self.cleaner_offsets()
        self._write_files(lines, sync=sync, sync_log_starts=True)
        if not cleaned.keys() >= self.cleaner.offsets.keys() or (sync and self.cleaner.synced_offsets != cleaned):
            self.cleaner.write(cleaned, sync_dir=sync)

    def write_job(self) -> Iterator[None]:
        """Write recovery points, log start offsets and high watermarks, unsynced, if one changed, as a job.

        It yields every `LOGS_PER_STEP` logs; the last step corrects the entries of logs that were truncated, removed or
        created, or have a raised log start offset.

        Raises:
            OSError: the disk failed.
        """
        logs = list(self._logs.values())
        seen: dict[PartitionLog, CheckpointedOffsets] = {}
        changed = len(logs) != len(self._written)
        for first in range(0, len(logs), LOGS_PER_STEP):
            for log in logs[first : first + LOGS_PER_STEP]:
                offsets = seen[log] = offsets_to_checkpoint(log)
                changed = changed or self._written.get(log) != offsets
            yield
        if not changed:
            return
        lines: dict[PartitionLog, CheckpointEntries] = {}
        for first in range(0, len(logs), LOGS_PER_STEP):
            for log in logs[first : first + LOGS_PER_STEP]:
                lines[log] = _format_lines(log, seen[log])
            yield
        for log, offsets in list(seen.items()):
            if log.closed:
                del seen[log], lines[log]
                continue
            above = log.recovery_point < offsets.recovery_point or log.high_watermark < offsets.high_watermark
            if above or log.log_start_offset != offsets.log_start_offset:
                lines[log] = _format_lines(log, offsets_to_checkpoint(log))
        for log in self._logs.values():
            if log not in seen and not log.closed:  # created during a yield: the files may have its entry already
                offsets = seen[log] = offsets_to_checkpoint(log)
                lines[log] = _format_lines(log, offsets)
        self._has_unsynced_files = True
        self._write_files(lines, sync=False, sync_log_starts=False)
        self._written = seen

    def _write_files(self, lines: dict[PartitionLog, CheckpointEntries], *, sync: bool, sync_log_starts: bool) -> None:
        """Write the files of recovery points, log start offsets and high watermarks, of the logs in ``lines``, at once.

        Raises:
            OSError: as `write`.
        """
        starts: dict[TopicPartition, int] = {}
        bounds: dict[TopicPartition, int] = {}
        for log, row in lines.items():
            at = (log.topic, log.partition)
            bound = max(self._bounds.get(at, 0), log.recovery_point)
            if row.log_start_offset:
                starts[at] = log.log_start_offset
                bound = max(bound, log.log_start_offset)
            if bound > 0:
                bounds[at] = bound
        self._bounds |= bounds  # a failure leaves some files unchanged
        points, log_starts, watermarks = ([row[n] for row in lines.values() if row[n]] for n in range(3))
        write_entries(self._disk, f"{self._directory}/{RECOVERY_POINT_CHECKPOINT}", points, sync=sync)
        if sync or not sync_log_starts or self.log_starts.needs_write(starts):
            self.log_starts.write(starts, log_starts, sync=sync_log_starts, sync_dir=sync)
        write_entries(self._disk, f"{self._directory}/{REPLICATION_OFFSET_CHECKPOINT}", watermarks, sync=sync)
        self._bounds = bounds

    def write_log_start_offsets(self, logs: Iterable[PartitionLog]) -> None:
        """Write the log start offsets of ``logs`` into their file, without a sync; its other entries stay.

        The last synced file becomes the backup.

        Raises:
            OSError: as `LogStartOffsetCheckpoint.write`.
        """
        starts = dict(self.log_starts.offsets)
        for log in logs:
            at = (log.topic, log.partition)
            starts[at] = log.log_start_offset
            self._bounds[at] = max(self._bounds.get(at, 0), log.log_start_offset)
        self.log_starts.write(starts, sync=False)

    # ------------------------------------------------------------------ sync

    @property
    def has_unsynced_files(self) -> bool:
        """True if a power failure could lose a whole file: every log would then be recovered from its start."""
        return self._has_unsynced_files or not self.log_starts.is_durable

    def prepare_sync(self) -> Callable[[], int]:
        """Return a function that syncs the files in a thread and returns the argument of `complete_sync`.

        Raises:
            OSError: here and in the thread; the log directory must go offline, unless the process is out of resources.
        """
        sync_log_starts = self.log_starts.prepare_sync()
        names = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT) if self._has_unsynced_files else ()

        def sync() -> int:
            for name in names:
                sync_file(self._disk, f"{self._directory}/{name}")
            return sync_log_starts()

        return sync

    def complete_sync(self, write_count: int) -> None:
        """Record that the checkpoint files are synced; ``write_count``: the result of the function of `prepare_sync`.

        Raises:
            OSError: the log directory must go offline, unless the process is out of resources.
        """
        self._has_unsynced_files = False
        self.log_starts.complete_sync(write_count)

    # ------------------------------------------------------------------ cleaner offsets

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Return the cleaner offset of each log for which it is above 0, by partition.

        Also of a log that is not compacted: after a start it is the first base offset.
        """
        return {at: log.cleaner_offset for at, log in self._logs.items() if log.cleaner_offset > 0}

    def is_cleaner_offset_synced(self, log: PartitionLog) -> bool:
        """Return True if the checkpoint file has the log's current cleaner offset durably; no entry counts as 0.

        False for all logs while a power failure may restore the previous file.
        """
        synced = self.cleaner.synced_offsets
        return synced is not None and synced.get((log.topic, log.partition), 0) == log.cleaner_offset
