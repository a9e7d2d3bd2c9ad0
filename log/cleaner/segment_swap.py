"""Replacement of segments by compacted ones, safe against a power failure at any point.

Until a directory is synced, its renames may become durable in any order. So there are three steps, each followed by a
sync of the directory in a thread (the second only if it renamed files):

1. `add_swap_suffix`: the new segments are renamed to ``.swap``. From now on `recovery` completes the replacement after
   a crash: each ``.swap`` segment replaces all segments within its offset range.
2. `replace_segments`: the old segments are removed from the log, and those whose base offset no new segment has are
   renamed to ``.deleted``. Until this is durable no new segment may lose its ``.swap`` suffix: else an old segment
   could reappear after one that covers its offsets, and recovery would treat both as damaged.
3. `remove_swap_suffix`: the new segments are renamed to their final names.

Reads continue meanwhile: a new segment's file stays open and its indexes in memory until it has its final name.

Source: ``LocalLog.replaceSegments`` (apache/kafka 4.3.1), which syncs the directory only once, at the end.
"""

from __future__ import annotations

from ottla.env.disk import Disk
from ottla.log.cleaner.compaction import CleanedSegment
from ottla.log.file_names import CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segment import LogSegment

# Order of renames: until `.log` is renamed, the segment is not replaced.
_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def rename_files(disk: Disk, path: str, old: str, new: str) -> None:
    """Rename a segment's existing files from the state suffix ``old`` to ``new``, unsynced, the ``.log`` file last.

    ``path`` is without file suffix.
    """
    for suffix in _SUFFIXES:
        if disk.exists(f"{path}{suffix}{old}"):
            disk.rename(f"{path}{suffix}{old}", f"{path}{suffix}{new}")


class SegmentSwap:
    """Replacement of a log's segments by the ``.cleaned`` segments of one compaction pass, in three calls."""

    def __init__(self, log: PartitionLog, cleaned: list[CleanedSegment]) -> None:
        self._log = log
        self._truncations = log.truncations
        self._cleaned = cleaned
        self._new: list[LogSegment] = []
        self.removes_base_offsets = False
        """True if `replace_segments` renamed segments to ``.deleted``: it must be followed by `sync_directory`."""

    def _find_sources(self, done: CleanedSegment) -> list[LogSegment] | None:
        """Return the adjacent segments of the log that ``done`` replaces; None if the log has changed since."""
        log = self._log
        if log.closed or log.truncations != self._truncations or done.sources[0] not in log.segments.base_offsets:
            return None
        at = log.segments.base_offsets.index(done.sources[0])
        sources = log.segments[at : at + len(done.sources)]
        unchanged = [s.base_offset for s in sources] == done.sources and sources[-1] is not log.segments.active
        return sources if unchanged else None

    def add_swap_suffix(self) -> bool:
        """Rename the new segments' files to ``.swap``; return False, without changes, if the log has changed.

        The caller then runs `sync_directory`.

        Raises:
            OSError: the log directory must go offline.
        """
        if any(self._find_sources(done) is None for done in self._cleaned):
            return False
        log = self._log
        for done in self._cleaned:
            rename_files(log.disk, f"{log.directory}/{done.base_offset:020d}", CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX)
        return True

    def sync_directory(self) -> None:
        """Sync the partition's directory, waiting for the disk; called in a thread.

        Raises:
            OSError: the log directory must go offline.
        """
        try:
            self._log.disk.fsync_dir(self._log.directory)
        except FileNotFoundError:
            if not self._log.closed:  # else the directory was renamed for deletion
                raise

    def replace_segments(self, now_ms: int) -> bool:
        """Replace the old segments in the log; return False, without changes, if the log has changed.

        The caller then runs `sync_directory` if `removes_base_offsets` is True, then `remove_swap_suffix`.
        ``now_ms``: wall clock.

        Raises:
            OSError: the log is either unchanged or offline.
        """
        log = self._log
        found = [self._find_sources(done) for done in self._cleaned]
        if None in found:
            return False
        pairs = [
            (self._open_swap_segment(done, sources), sources)
            for done, sources in zip(self._cleaned, found, strict=True)
            if sources
        ]
        with log.offline_on_error("replacing segments failed"):
            for new, sources in pairs:
                for source in sources:
                    if source.base_offset == new.base_offset:
                        source.detach_file()
                    else:
                        log.segments.retire(source, now_ms)
                        self.removes_base_offsets = True
                log.segments.replace(log.segments.base_offsets.index(new.base_offset), len(sources), [new])
                self._new.append(new)
        return True

    def _open_swap_segment(self, done: CleanedSegment, sources: list[LogSegment]) -> LogSegment:
        """Return a new segment with its ``.swap`` file open and its indexes loaded, not yet part of the log."""
        log, created_ms = self._log, max(source.created_ms for source in sources)
        return LogSegment.open_pinned(
            log.disk, log.directory, done.base_offset, log.config, created_ms, SWAP_FILE_SUFFIX
        )

    def remove_swap_suffix(self) -> None:
        """Rename the new segments' files to their final names. The caller syncs the directory afterwards.

        Raises:
            OSError: the log is offline.
        """
        log = self._log
        with log.offline_on_error("replacing segments failed"):
            for new in self._new:
                if log.closed or new not in log.segments:
                    continue  # removed since: its files have other names already
                if not new.aborted_txns and log.disk.exists(f"{new.path}.txnindex"):
                    log.disk.unlink(f"{new.path}.txnindex")
                rename_files(log.disk, new.path, SWAP_FILE_SUFFIX, "")
                new.unpin()
        log.segments.record_directory_change()
