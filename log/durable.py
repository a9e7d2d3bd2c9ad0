"""What has to be synced so that a log survives a power cut up to some offset.

A sync waits in a thread while the loop goes on appending, rolling and truncating. So it is an object: made on the loop
(`PartitionLog.begin_sync`), which notes what it speaks for; run in the thread, where it only waits; handed back on the
loop (`PartitionLog.finish_sync`), which believes it as far as nothing was truncated meanwhile.

Source: ``UnifiedLog.flush``, ``LogSegment.flush`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress

from ottla.log.state import LogState
from ottla.world.disk import sync_file


class SyncJob:
    """Makes everything below ``end`` durable: batches, the indexes that will be believed, and the files' names."""

    __slots__ = ("_files", "_log", "_paths", "end", "names", "truncations", "with_parent")

    def __init__(self, log: LogState, end: int) -> None:
        """The open files are taken here, since meanwhile a segment may be exchanged or removed."""
        self._log = log
        self.end = end
        self.truncations = log.truncations
        self.names = log.names_made
        self.with_parent = log.is_new
        first = max(bisect_right(log.bases, log.recovery_point) - 1, 0)
        segments = [s for s in log.segments[first:] if s.base_offset < end] if end > log.recovery_point else []
        self._files = [s.file for s in segments]
        self._paths = [path for s in segments for path in s.index_paths(sealed=s is not log.active)]

    def __call__(self) -> None:
        """Wait for the disk; changes nothing in the log.

        Raises:
            OSError: final for the directory.
        """
        for file in self._files:
            file.fsync()
        log = self._log
        for path in self._paths:
            with suppress(FileNotFoundError):
                sync_file(log.disk, path)
        try:
            if self.names > log.names_synced:
                log.disk.fsync_dir(log.directory)
            if self.with_parent:
                log.disk.fsync_dir(log.directory.rpartition("/")[0])
        except FileNotFoundError:
            if not log.closed:  # else its directory was just renamed for deletion
                raise
