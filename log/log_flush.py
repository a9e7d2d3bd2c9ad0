"""Durability state of a log (recovery point, unsynced names), and the flushes that advance it.

A flush runs in a thread while the event loop continues to append, roll and truncate. It is therefore an object:
`PartitionLog.start_flush` creates it on the loop and records the end offset that it covers, a thread runs it, and
`PartitionLog.complete_flush` applies the result on the loop, unless the log was truncated meanwhile.

Source: ``UnifiedLog.flush``, ``LogSegment.flush`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.env.disk import sync_file
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.segment.log_segments import LogSegments


class FlushState:
    """Durability state of one log's files: which of them survive a power failure."""

    __slots__ = (
        "flush_start_offset",
        "is_directory_unsynced",
        "recovery_point",
        "sealed_end_offset",
        "synced_directory_changes",
    )

    def __init__(
        self, recovery_point: int, log_end_offset: int, *, is_sealed: bool, is_directory_unsynced: bool
    ) -> None:
        self.recovery_point = recovery_point
        """Recovery point: all records below this offset are durable."""
        self.flush_start_offset = log_end_offset
        """Log end offset when a flush of the whole log was last started; the next flush covers later records."""
        self.sealed_end_offset = log_end_offset if is_sealed else -1
        """Log end offset for which durable index and producer snapshot files exist; -1 for none."""
        self.synced_directory_changes = 0
        """`LogSegments.directory_changes` as of the last sync of the partition's directory."""
        self.is_directory_unsynced = is_directory_unsynced
        """True if the partition directory's own name is not durable yet (its parent was not synced)."""

    def lower(self, offset: int) -> None:
        """Lower the recovery point to at most ``offset``, since batches or indexes from there on are not durable."""
        self.recovery_point = min(self.recovery_point, offset)

    def on_truncated(self, offset: int) -> None:
        """Lower the recovery point and the flush start to at most ``offset`` after a truncation to it.

        The files of a clean shutdown do not describe the log any more.
        """
        self.recovery_point = min(self.recovery_point, offset)
        self.flush_start_offset = min(self.flush_start_offset, offset)
        self.sealed_end_offset = -1

    def on_flush_started(self, log_end_offset: int) -> None:
        """Record that a flush of the whole log, up to ``log_end_offset`` (exclusive), was started."""
        self.flush_start_offset = log_end_offset

    def on_flushed(self, flush: LogFlush, truncations: int, active_base_offset: int) -> int:
        """Apply the result of a completed flush, which may raise the recovery point; return the recovery point.

        ``truncations``, ``active_base_offset``: those of the log now. If the log was truncated during the flush, only
        file names count as synced. If it was rolled, the recovery point stays at or below the base offset of the
        segment that was active before: its index files are not synced.
        """
        self.synced_directory_changes = max(self.synced_directory_changes, flush.directory_change_count)
        if flush.syncs_parent:
            self.is_directory_unsynced = False
        if flush.truncations == truncations:
            is_rolled = flush.active_base_offset != active_base_offset
            end = min(flush.end, flush.active_base_offset) if is_rolled else flush.end
            self.recovery_point = max(self.recovery_point, end)
        return self.recovery_point

    def is_flush_needed(self, log_end_offset: int, segments: LogSegments) -> bool:
        """Return True if records below the log end offset, or names of files of the log, are not durable yet."""
        is_directory_changed = segments.directory_changes > self.synced_directory_changes
        return log_end_offset > self.recovery_point or is_directory_changed or self.is_directory_unsynced

    def on_directory_synced(self) -> None:
        """Record that the log directory, which contains the partition's directory, was synced."""
        self.is_directory_unsynced = False

    def on_sealed(self, log_end_offset: int) -> None:
        """Record that the files which the next start trusts after a clean shutdown are durable, up to the log end."""
        self.sealed_end_offset = log_end_offset


class LogFlush:
    """Flush of a log up to the offset ``end`` (exclusive), which a thread runs by calling it.

    It syncs batches, index files, the leader epoch file, and the names in the partition's directory.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_is_closed",
        "_paths",
        "_segments",
        "_state",
        "active_base_offset",
        "directory_change_count",
        "end",
        "epoch_file_writes",
        "syncs_parent",
        "truncations",
    )

    def __init__(
        self,
        segments: LogSegments,
        epochs: LeaderEpochFileCache,
        state: FlushState,
        end: int,
        truncations: int,
        is_closed: Callable[[], bool],
        more: Iterable[str] = (),
    ) -> None:
        """Collect the files to sync, on the event loop, since segments may be replaced or removed during the flush.

        A file that is not open was not written by this process: the thread opens one at a time, since there may be more
        of them than descriptors. ``more``: paths of further files to sync, which the next start will trust.
        ``truncations``: number of truncations of the log so far. ``is_closed``: returns True once the log was closed or
        taken offline.
        """
        self._segments = segments
        self._epochs = epochs
        self._state = state
        self._is_closed = is_closed
        self.end = end
        self.truncations = truncations
        self.directory_change_count = segments.directory_changes
        self.syncs_parent = state.is_directory_unsynced
        self.epoch_file_writes = epochs.write_count
        active = segments.active
        self.active_base_offset = active.base_offset
        point = state.recovery_point
        unflushed = [s for s in segments.unflushed(point) if s.base_offset < end] if end > point else []
        self._files = [s.file for s in unflushed if s.is_open or s is active]
        self._paths = [f"{s.path}.log" for s in unflushed if not (s.is_open or s is active)]
        self._paths += [path for s in unflushed for path in s.index_files_to_sync(sealed=s is not active)]
        self._paths += [path for path in more if path not in self._paths]
        if epochs.is_file_unsynced:
            self._paths.append(epochs.path)

    def __call__(self) -> None:
        """Sync the files and directories, waiting for the disk; runs in a thread and changes no state of the log.

        Raises:
            OSError: the log directory must go offline.
        """
        for file in self._files:
            file.fsync()
        segments, disk = self._segments, self._segments.disk
        for path in self._paths:
            with suppress(FileNotFoundError):
                sync_file(disk, path)
        try:
            is_changed = self.directory_change_count > self._state.synced_directory_changes
            if is_changed or self._epochs.path in self._paths:
                disk.fsync_dir(segments.directory)
            if self.syncs_parent:
                disk.fsync_dir(segments.directory.rpartition("/")[0])
        except FileNotFoundError:
            if not self._is_closed():  # else the directory was renamed for deletion
                raise
