"""The checkpoints of a directory with very many logs, written in steps so that others may run in between, then synced.

What others change meanwhile is made up for in the last step: no file ever names a recovery point or a high watermark
above a cut, or a log start that records were deleted behind, or a log that is not there any more.

Source: ``LogManager.checkpointRecoveryOffsetsInDir``, ``checkpointLogStartOffsetsInDir`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.log import checkpoints as c
from ottla.log.directory import LogDirectory
from ottla.log.names import TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.world.disk import sync_file

STEP = 100


class Points(NamedTuple):
    """What the checkpoints say of one log."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    starts_within: bool
    """Whether the log starts behind the start of its first segment: only then its start is noted."""


def points_of(log: PartitionLog) -> Points:
    """What is to be said of a log now."""
    start = log.log_start_offset
    return Points(log.recovery_point, start, log.high_watermark, start > log.bases[0])


class PointsWriter:
    """One directory's checkpoints, and what was written last."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._written: dict[PartitionLog, Points] = {}
        self._unsynced = False
        self._settling = 0

    def steps(self) -> Iterator[None]:
        """Write the files, unsynced, where something changed since the last time.

        Raises:
            OSError: the disk failed.
        """
        logs = list(self._directory.logs.values())
        seen: dict[PartitionLog, Points] = {}
        changed = len(logs) != len(self._written)
        for first in range(0, len(logs), STEP):
            for log in logs[first : first + STEP]:
                points = seen[log] = points_of(log)
                changed = changed or self._written.get(log) != points
            yield
        if not changed:
            return
        lines: dict[PartitionLog, tuple[str, str, str]] = {}
        for first in range(0, len(logs), STEP):
            for log in logs[first : first + STEP]:
                lines[log] = _lines(log, seen[log])
                log.points_noted()  # a cut from here on rewrites what is about to be written
            yield
        starts: dict[TopicPartition, int] = {}
        mentioned: set[TopicPartition] = set()
        for log, points in list(seen.items()):
            if log.closed:
                del seen[log], lines[log]
                continue
            above = log.recovery_point < points.recovery_point or log.high_watermark < points.high_watermark
            if above or log.log_start_offset != points.log_start_offset:
                lines[log] = _lines(log, points_of(log))
            if lines[log][1]:
                starts[log.topic, log.partition] = log.log_start_offset
            if log.recovery_point > 0 or lines[log][1]:
                mentioned.add((log.topic, log.partition))
        self._directory.about_to_note(starts, mentioned)
        self._write(lines)
        self._directory.were_noted(mentioned)
        self._written = seen

    def _write(self, lines: dict[PartitionLog, tuple[str, str, str]]) -> None:
        """Write the three files, one after the other, and nobody runs in between."""
        directory = self._directory
        self._unsynced = True
        columns = [[row[column] for row in lines.values() if row[column]] for column in range(3)]
        c.write_lines(directory.disk, f"{directory.path}/{c.RECOVERY_POINTS}", columns[0], sync=False)
        directory.starts.say(columns[1])
        c.write_lines(directory.disk, f"{directory.path}/{c.HIGH_WATERMARKS}", columns[2], sync=False)

    @property
    def unsynced(self) -> bool:
        """Whether a power cut could take the files as a whole: then every batch of every log would be read."""
        return self._unsynced or not self._directory.starts.is_settled

    def settling(self) -> Callable[[], None]:
        """What waits until the files are on the disk, those of now or newer ones: for a thread. Then `settled`.

        Raises:
            OSError: final, unless the process is only short of something; also in the thread.
        """
        directory, starts = self._directory, self._directory.starts.settling()
        names = (c.RECOVERY_POINTS, c.HIGH_WATERMARKS) if self._unsynced else ()

        def settle() -> None:
            for name in names:
                sync_file(directory.disk, f"{directory.path}/{name}")
            self._settling = starts()

        return settle

    def settled(self) -> None:
        """They are.

        Raises:
            OSError: final, unless the process is only short of something.
        """
        self._unsynced = False
        self._directory.starts.settled(self._settling)


def _lines(log: PartitionLog, points: Points) -> tuple[str, str, str]:
    """A log's line in each of the three files; empty for none."""
    at = f"{log.topic} {log.partition}"
    start = f"{at} {points.log_start_offset}" if points.starts_within else ""
    return f"{at} {points.recovery_point}", start, f"{at} {points.high_watermark}"
