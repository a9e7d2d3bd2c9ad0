"""Making a partition's log durable: syncs while it is written to, files that rest, and the state a clean stop leaves.

Source: ``UnifiedLog.flush``, ``UnifiedLog.close``, ``LogManager.shutdown`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ottla.env.disk import write_file
from ottla.log.log_flush import LogFlush
from ottla.log.segment.log_segment import LogSegment, segment_file_name
from ottla.log.truncatable_log import TruncatableLog

MAX_UNSYNCED_SNAPSHOT_LOG_BYTES = 1 << 20
"""A log up to this size is read again sooner than a sync of its producer snapshot takes."""


class FlushableLog(TruncatableLog):
    """A log whose bytes reach the disk."""

    def write_producer_snapshot(self, offset: int = -1) -> str:
        """Write the producer state as of the log end, for a segment that begins there or at ``offset``: its path."""
        path = f"{self.directory}/{segment_file_name(self.log_end_offset if offset < 0 else offset, '.snapshot')}"
        write_file(self.disk, path, self.producers.pack(), sync=False)
        return path

    def unflushed_segments(self) -> list[LogSegment]:
        """Segments with bytes above the recovery point, oldest first."""
        start = max(bisect_right(self.base_offsets, self.recovery_point) - 1, 0)
        return self.segments[start:]

    @property
    def is_idle(self) -> bool:
        """Whether something awaits its sync, and nobody has touched the log since the last `close_idle_files`."""
        return self.log_end_offset > self.recovery_point and not self.active_segment.used_since_idle_check

    def close_idle_files(self) -> None:
        """Close the files nobody used since the last call. One that awaits its sync stays open: the sync may fail."""
        for segment in self.segments[: -len(self.unflushed_segments())]:
            segment.close_if_idle(sealed=True)
        if self.recovery_point >= self.log_end_offset:
            self.active_segment.close_if_idle(sealed=False)
        else:
            self.active_segment.used_since_idle_check = False

    def start_flush(self, end: int, more: Iterable[str] = ()) -> LogFlush:
        """What makes all below ``end``, and all files' names, durable: run it in a thread, then `complete_flush`.

        ``more``: paths of other files to sync.

        Raises:
            OSError: a file cannot be opened.
        """
        job = LogFlush(self, end, more)
        if end >= self.log_end_offset:
            self.unflushed_records = 0
        return job

    def complete_flush(self, job: LogFlush) -> int:
        """A sync is done; gives the recovery point.

        One that a truncation overtook speaks for names only; one that a roll overtook not for the segment that was
        sealed meanwhile: its indexes are not synced.
        """
        self.synced_directory_changes = max(self.synced_directory_changes, job.directory_change_count)
        self.epochs.on_synced(job.epoch_file_writes)
        if job.syncs_parent:
            self.is_directory_unsynced = False
        if job.truncations == self.truncations:
            end = (
                job.end
                if job.active_base_offset == self.active_segment.base_offset
                else min(job.end, job.active_base_offset)
            )
            self.recovery_point = max(self.recovery_point, end)
        return self.recovery_point

    def on_directory_synced(self) -> None:
        """The directory the partition's own lies in was synced."""
        self.is_directory_unsynced = False

    def flush(self) -> None:
        """Make everything appended so far survive a power cut.

        Raises:
            OSError: final; the directory must go offline.
        """
        self._flush(())

    def _flush(self, more: Iterable[str]) -> None:
        unsynced = self.epochs.is_file_unsynced and self.log_end_offset > self.log_start_offset
        if (
            self.log_end_offset > self.recovery_point
            or self.directory_changes > self.synced_directory_changes
            or self.is_directory_unsynced
            or unsynced
        ):
            job = self.start_flush(self.log_end_offset, more)
            job()
            self.complete_flush(job)

    def close(self) -> None:
        """Flush, seal the active segment, write the snapshot: the state of a clean stop. Nothing changed costs nothing,
        and a log that never held a record is made anew just so: for it nothing is synced.

        Raises:
            OSError: then the log is closed, but not `sealed`.
        """
        if self.closed:
            return
        self.closed = True
        if self.log_end_offset > 0:
            self._write_closing_files()
        self.sealed_end_offset = self.log_end_offset
        self.closed_cleanly = True
        self.close_files()

    def _write_closing_files(self) -> None:
        """Write and sync what the next start will believe."""
        written = []
        changed = self.sealed_end_offset != self.log_end_offset
        if changed:
            path = self.write_producer_snapshot()
            if self.producers.producers or self.size_bytes > MAX_UNSYNCED_SNAPSHOT_LOG_BYTES:
                written.append(path)  # else a torn one, which its checksum tells, costs next to nothing
        if changed and self.truncations:
            written.append(f"{self.active_segment.path}.log")  # it may be all synced but for the cut
        for segment in self.segments:
            if segment.are_index_files_stale or (segment is self.active_segment and changed):
                segment.write_index_files()
                written += segment.index_files_to_sync(sealed=True)
        self.directory_changes += changed or bool(written)
        self._flush(written)

    def close_files(self) -> None:
        """Give the descriptors back, nothing else."""
        for segment in self.segments:
            segment.close()
