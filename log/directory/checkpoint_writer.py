"""The checkpoints of a directory with very many logs, written in steps so that others may run in between, then synced.

What others change meanwhile is made up for in the last step: no file ever names a recovery point or a high watermark
above a cut, or a log start that records were deleted behind, or a log that is not there any more.

Source: ``LogManager.checkpointRecoveryOffsetsInDir``, ``checkpointLogStartOffsetsInDir`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.env.disk import sync_file
from ottla.log.checkpoints.checkpoint_files import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    write_entries,
)
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import TopicPartition
from ottla.log.partition_log import PartitionLog

LOGS_PER_STEP = 100


class CheckpointedOffsets(NamedTuple):
    """What the checkpoints say of one log."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    starts_inside_segment: bool
    """Whether the log starts behind the start of its first segment: only then its start is noted."""


def offsets_to_checkpoint(log: PartitionLog) -> CheckpointedOffsets:
    """What is to be said of a log now."""
    start = log.log_start_offset
    return CheckpointedOffsets(log.recovery_point, start, log.high_watermark, start > log.base_offsets[0])


class CheckpointWriter:
    """One directory's checkpoints, and what was written last."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._written: dict[PartitionLog, CheckpointedOffsets] = {}
        self._has_unsynced_files = False
        self._synced_write_count = 0

    def write_job(self) -> Iterator[None]:
        """Write the files, unsynced, where something changed since the last time.

        Raises:
            OSError: the disk failed.
        """
        logs = list(self._directory.logs.values())
        seen: dict[PartitionLog, CheckpointedOffsets] = {}
        changed = len(logs) != len(self._written)
        for first in range(0, len(logs), LOGS_PER_STEP):
            for log in logs[first : first + LOGS_PER_STEP]:
                points = seen[log] = offsets_to_checkpoint(log)
                changed = changed or self._written.get(log) != points
            yield
        if not changed:
            return
        lines: dict[PartitionLog, tuple[str, str, str]] = {}
        for first in range(0, len(logs), LOGS_PER_STEP):
            for log in logs[first : first + LOGS_PER_STEP]:
                lines[log] = _format_entries(log, seen[log])
                log.on_checkpointed()  # a cut from here on rewrites what is about to be written
            yield
        starts: dict[TopicPartition, int] = {}
        mentioned: set[TopicPartition] = set()
        for log, points in list(seen.items()):
            if log.closed:
                del seen[log], lines[log]
                continue
            above = log.recovery_point < points.recovery_point or log.high_watermark < points.high_watermark
            if above or log.log_start_offset != points.log_start_offset:
                lines[log] = _format_entries(log, offsets_to_checkpoint(log))
            if lines[log][1]:
                starts[log.topic, log.partition] = log.log_start_offset
            if log.recovery_point > 0 or lines[log][1]:
                mentioned.add((log.topic, log.partition))
        self._directory.prepare_checkpoint_write(starts, mentioned)
        self._write(lines)
        self._directory.complete_checkpoint_write(mentioned)
        self._written = seen

    def _write(self, lines: dict[PartitionLog, tuple[str, str, str]]) -> None:
        """Write the three files, one after the other, and nobody runs in between."""
        directory = self._directory
        self._has_unsynced_files = True
        columns = [[row[column] for row in lines.values() if row[column]] for column in range(3)]
        write_entries(directory.disk, f"{directory.path}/{RECOVERY_POINT_CHECKPOINT}", columns[0], sync=False)
        directory.log_start_checkpoint.write_entries(columns[1])
        write_entries(directory.disk, f"{directory.path}/{REPLICATION_OFFSET_CHECKPOINT}", columns[2], sync=False)

    @property
    def has_unsynced_files(self) -> bool:
        """Whether a power cut could take the files as a whole: then every batch of every log would be read."""
        return self._has_unsynced_files or not self._directory.log_start_checkpoint.is_durable

    def prepare_sync(self) -> Callable[[], None]:
        """What waits until the files are on the disk, those of now or newer ones: for a thread. Then `complete_sync`.

        Raises:
            OSError: final, unless the process is only short of something; also in the thread.
        """
        directory, starts = self._directory, self._directory.log_start_checkpoint.prepare_sync()
        names = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT) if self._has_unsynced_files else ()

        def settle() -> None:
            for name in names:
                sync_file(directory.disk, f"{directory.path}/{name}")
            self._synced_write_count = starts()

        return settle

    def complete_sync(self) -> None:
        """They are.

        Raises:
            OSError: final, unless the process is only short of something.
        """
        self._has_unsynced_files = False
        self._directory.log_start_checkpoint.complete_sync(self._synced_write_count)


def _format_entries(log: PartitionLog, points: CheckpointedOffsets) -> tuple[str, str, str]:
    """A log's line in each of the three files; empty for none."""
    at = f"{log.topic} {log.partition}"
    start = f"{at} {points.log_start_offset}" if points.starts_inside_segment else ""
    return f"{at} {points.recovery_point}", start, f"{at} {points.high_watermark}"
