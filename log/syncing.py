"""Making a partition's log durable: syncs while it is written to, files that rest, and the state a clean stop leaves.

Source: ``UnifiedLog.flush``, ``UnifiedLog.close``, ``LogManager.shutdown`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ottla.log.durable import SyncJob
from ottla.log.segment import Segment, file_name
from ottla.log.truncating import TruncatableLog
from ottla.world.disk import write_file

QUICKLY_READ_BYTES = 1 << 20
"""A log up to this size is read again sooner than a sync of its producer snapshot takes."""


class SyncedLog(TruncatableLog):
    """A log whose bytes reach the disk."""

    def write_snapshot(self, offset: int = -1) -> str:
        """Write the producer state as of the log end, for a segment that begins there or at ``offset``: its path."""
        path = f"{self.directory}/{file_name(self.log_end_offset if offset < 0 else offset, '.snapshot')}"
        write_file(self.disk, path, self.producers.pack(), sync=False)
        return path

    def unflushed(self) -> list[Segment]:
        """Segments with bytes above the recovery point, oldest first."""
        start = max(bisect_right(self.bases, self.recovery_point) - 1, 0)
        return self.segments[start:]

    @property
    def rests(self) -> bool:
        """Whether something awaits its sync, and nobody has touched the log since the last `park`."""
        return self.log_end_offset > self.recovery_point and not self.active.used

    def park(self) -> None:
        """Close the files nobody used since the last call. One that awaits its sync stays open: the sync may fail."""
        for segment in self.segments[: -len(self.unflushed())]:
            segment.park(sealed=True)
        if self.recovery_point >= self.log_end_offset:
            self.active.park(sealed=False)
        else:
            self.active.used = False

    def begin_sync(self, end: int, more: Iterable[str] = ()) -> SyncJob:
        """What makes everything below ``end``, and all files' names, durable: run it in a thread, then `finish_sync`.

        ``more``: paths of other files to sync.

        Raises:
            OSError: a file cannot be opened.
        """
        job = SyncJob(self, end, more)
        if end >= self.log_end_offset:
            self.unflushed_records = 0
        return job

    def finish_sync(self, job: SyncJob) -> int:
        """A sync is done; gives the recovery point.

        One that a truncation overtook speaks for names only; one that a roll overtook not for the segment that was
        sealed meanwhile: its indexes are not synced.
        """
        self.names_synced = max(self.names_synced, job.names)
        self.epochs.were_synced(job.epochs)
        if job.with_parent:
            self.is_new = False
        if job.truncations == self.truncations:
            end = job.end if job.active_base == self.active.base_offset else min(job.end, job.active_base)
            self.recovery_point = max(self.recovery_point, end)
        return self.recovery_point

    def name_is_synced(self) -> None:
        """The directory the partition's own lies in was synced."""
        self.is_new = False

    def flush(self) -> None:
        """Make everything appended so far survive a power cut.

        Raises:
            OSError: final; the directory must go offline.
        """
        self._flush(())

    def _flush(self, more: Iterable[str]) -> None:
        unsynced = self.epochs.unsynced and self.log_end_offset > self.log_start_offset
        if self.log_end_offset > self.recovery_point or self.names_made > self.names_synced or self.is_new or unsynced:
            job = self.begin_sync(self.log_end_offset, more)
            job()
            self.finish_sync(job)

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
            self._seal()
        self.sealed_at = self.log_end_offset
        self.sealed = True
        self.close_files()

    def _seal(self) -> None:
        """Write and sync what the next start will believe."""
        written = []
        changed = self.sealed_at != self.log_end_offset
        if changed:
            path = self.write_snapshot()
            if self.producers.producers or self.size_bytes > QUICKLY_READ_BYTES:
                written.append(path)  # else a torn one, which its checksum tells, costs next to nothing
        if changed and self.truncations:
            written.append(f"{self.active.path}.log")  # it may be all synced but for the cut
        for segment in self.segments:
            if segment.stale or (segment is self.active and changed):
                segment.seal()
                written += segment.index_paths(sealed=True)
        self.names_made += changed or bool(written)
        self._flush(written)

    def close_files(self) -> None:
        """Give the descriptors back, nothing else."""
        for segment in self.segments:
            segment.close()
