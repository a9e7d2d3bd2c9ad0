"""What has to be synced so that a log survives a power cut up to some offset.

A sync waits in a thread while the loop goes on appending, rolling and truncating. So it is an object: made on the loop
(`PartitionLog.start_flush`), which notes what it speaks for; run in the thread, where it only waits; handed back on the
loop (`PartitionLog.complete_flush`), which believes it as far as nothing was truncated meanwhile.

Source: ``UnifiedLog.flush``, ``LogSegment.flush`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress

from ottla.env.disk import sync_file
from ottla.log.log_state import LogState


class LogFlush:
    """Makes everything below ``end`` durable: batches, what will be believed beside them, and the files' names."""

    __slots__ = (
        "_files",
        "_log",
        "_paths",
        "active_base_offset",
        "directory_change_count",
        "end",
        "epoch_file_writes",
        "syncs_parent",
        "truncations",
    )

    def __init__(self, log: LogState, end: int, more: Iterable[str] = ()) -> None:
        """The open files are taken here, since meanwhile a segment may be exchanged or removed.

        What is not open was not written by this process: it is opened in the thread, one after the other, since there
        may be more of them than descriptors. ``more``: other files that will be believed.
        """
        self._log = log
        self.end = end
        self.truncations = log.truncations
        self.directory_change_count = log.directory_changes
        self.syncs_parent = log.is_directory_unsynced
        self.epoch_file_writes = log.epochs.write_count
        self.active_base_offset = log.active_segment.base_offset
        first = max(bisect_right(log.base_offsets, log.recovery_point) - 1, 0)
        segments = [s for s in log.segments[first:] if s.base_offset < end] if end > log.recovery_point else []
        self._files = [s.file for s in segments if s.is_open or s is log.active_segment]
        self._paths = [f"{s.path}.log" for s in segments if not (s.is_open or s is log.active_segment)]
        self._paths += [path for s in segments for path in s.index_files_to_sync(sealed=s is not log.active_segment)]
        self._paths += [path for path in more if path not in self._paths]
        if log.epochs.is_file_unsynced:
            self._paths.append(log.epochs.path)

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
            if self.directory_change_count > log.synced_directory_changes or log.epochs.path in self._paths:
                log.disk.fsync_dir(log.directory)
            if self.syncs_parent:
                log.disk.fsync_dir(log.directory.rpartition("/")[0])
        except FileNotFoundError:
            if not log.closed:  # else its directory was just renamed for deletion
                raise
