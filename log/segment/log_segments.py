"""Segments of one log, oldest first, and the ``.deleted`` files of removed segments.

Source: ``LogSegments.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import overload

from ottla.env.disk import Disk, FileSlice
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.file_names import DELETED_FILE_SUFFIX
from ottla.log.log_config import LogConfig
from ottla.log.segment.batch_scan import LogOffsetPosition, undamaged_end
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import LogSegment, segment_file_name
from ottla.log.segment.segment_truncation import truncate_segment
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import BatchHeader

SEGMENT_FILE_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_abort_marker_offset = attrgetter("last_offset")


class LogSegments(Sequence[LogSegment]):
    """List of the segments of one log, oldest first; at least one after loading or creation of the log."""

    active: LogSegment
    """Active segment, to which batches are appended: the newest."""

    def __init__(self, disk: Disk, directory: str, settings: LogConfig) -> None:
        self.disk = disk
        self.directory = directory
        self.config = settings
        self.base_offsets: list[int] = []
        self.retired_files: list[tuple[int, str]] = []
        """(time in ms from which it may be deleted, path) of each ``.deleted`` file of a removed segment."""
        self.directory_changes = 0
        """Number of files created, renamed or removed so far, to detect changes since the directory was last synced."""
        self._segments: list[LogSegment] = []
        self._older_bytes = -1
        """Cached size in bytes of all segments but the active one; -1: not computed."""

    @overload
    def __getitem__(self, index: int) -> LogSegment: ...

    @overload
    def __getitem__(self, index: slice) -> list[LogSegment]: ...

    def __getitem__(self, index: int | slice) -> LogSegment | list[LogSegment]:
        return self._segments[index]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def size_bytes(self) -> int:
        """Size in bytes of all segments."""
        if self._older_bytes < 0:
            self._older_bytes = sum(segment.size_bytes for segment in self._segments[:-1])
        return self._older_bytes + (self.active.size_bytes if self._segments else 0)

    def set_directory(self, directory: str) -> None:
        """Set the path of the partition's directory after it was renamed; open files stay open."""
        self.directory = directory
        for segment in self._segments:
            segment.set_directory(directory)
        self.retired_files = [(due_ms, f"{directory}/{path.rpartition('/')[2]}") for due_ms, path in self.retired_files]

    def update_config(self, settings: LogConfig) -> None:
        """Apply changed topic settings from the next append on."""
        self.config = settings
        for segment in self._segments:
            segment.update_config(settings)

    # ------------------------------------------------------------------ changes of the list

    def add(self, segment: LogSegment) -> None:
        """Append a segment to the list, as the active one; no file is touched."""
        self._older_bytes = -1
        self._segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def create(self, base_offset: int, now_ms: int) -> LogSegment:
        """Create an empty segment with its files and append it; it becomes the active one. ``now_ms``: wall clock.

        Raises:
            OSError: the disk failed; the list of segments is unchanged.
        """
        self.directory_changes += 1
        segment = LogSegment.create(self.disk, self.directory, base_offset, self.config, now_ms)
        self.add(segment)
        return segment

    def roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Create a segment as `create` does, but remove its files on an error.

        The active segment is then appended to further, beyond the base offset in the names of those files.

        Raises:
            OSError: the disk failed; the list of segments is unchanged.
        """
        try:
            return self.create(base_offset, now_ms)
        except OSError:
            for suffix in (".log", ".index", ".timeindex"):
                with suppress(OSError):
                    self.disk.unlink(f"{self.directory}/{segment_file_name(base_offset, suffix)}")
            raise

    def replace(self, index: int, count: int, segments: list[LogSegment]) -> None:
        """Replace ``count`` segments in the list from ``index`` on by ``segments``; files are unchanged."""
        self._older_bytes = -1
        self._segments[index : index + count] = segments
        self.base_offsets[index : index + count] = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]

    def remove_from(self, index: int) -> None:
        """Remove the segments from ``index`` on and delete their files at once, the newest first."""
        self._older_bytes = -1
        while len(self._segments) > index:
            segment = self._segments.pop()
            self.base_offsets.pop()
            self.directory_changes += 1
            segment.detach_file()
            for suffix in SEGMENT_FILE_SUFFIXES:
                if self.disk.exists(segment.path + suffix):
                    self.disk.unlink(segment.path + suffix)
        if self._segments:
            self.active = self._segments[-1]

    def truncate_to(self, offset: int) -> tuple[int, str | None]:
        """Remove every batch whose last offset is at or above ``offset``; the first segment itself stays.

        Returns:
            The new log end offset, and a message if damage truncated the log further, else None.
        """
        self.remove_from(bisect_right(self.base_offsets, offset))
        return truncate_segment(self.active, offset)

    def retire_oldest_below(self, log_start_offset: int, now_ms: int) -> bool:
        """Retire the oldest segment if it ends at or below ``log_start_offset``; return True if it was retired.

        The only segment never is. ``now_ms``: wall clock.
        """
        if len(self._segments) < 2 or self.base_offsets[1] > log_start_offset:
            return False
        self._older_bytes = -1
        del self.base_offsets[0]
        self.retire(self._segments.pop(0), now_ms)
        return True

    def retire(self, segment: LogSegment, now_ms: int) -> None:
        """Rename a segment's files to ``.deleted`` and add them to `retired_files`; the list of segments is unchanged.

        `pop_deletable_files` returns them ``file.delete.delay.ms`` after ``now_ms`` (wall clock), for deletion by its
        caller; those that remain are deleted at the next start.
        """
        segment.detach_file()
        for suffix in SEGMENT_FILE_SUFFIXES:
            path = segment.path + suffix
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED_FILE_SUFFIX)
                self.retired_files.append((now_ms + self.config.file_delete_delay_ms, path + DELETED_FILE_SUFFIX))

    def pop_deletable_files(self, now_ms: int) -> list[str]:
        """Remove the paths whose delay has passed (wall clock) from `retired_files`; return them for `remove_files`."""
        due = 0
        while due < len(self.retired_files) and self.retired_files[due][0] <= now_ms:
            due += 1
        paths = [path for _, path in self.retired_files[:due]]
        del self.retired_files[:due]
        return paths

    def record_directory_change(self) -> None:
        """Record that files were created or renamed by a caller, so that the next flush syncs the directory."""
        self.directory_changes += 1

    def add_aborted_txn(self, aborted: AbortedTxn, *, is_new: bool = False) -> None:
        """Add an aborted transaction to the transaction index of the segment with its marker, unless it has an entry.

        An existing entry is kept: its first offset may be lower than one found by a scan that begins in the middle of
        the transaction. ``is_new``: the marker is about to be appended to the active segment.
        """
        segment = self.active if is_new else self.segment_for(aborted.last_offset)
        entries = segment.aborted_txns
        at = bisect_left(entries, aborted.last_offset, key=_abort_marker_offset)
        if at < len(entries) and entries[at].last_offset == aborted.last_offset:
            return
        if is_new and not entries:
            self.directory_changes += 1
        segment.add_aborted_txn(aborted)

    # ------------------------------------------------------------------ reads

    def segment_for(self, offset: int) -> LogSegment:
        """Return the segment with the largest base offset not above ``offset``; the first one if all are above."""
        return self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0)]

    def locate(self, offset: int) -> tuple[LogSegment, LogOffsetPosition] | None:
        """Return segment and file position of the first batch that ends at or above ``offset``; None if there is none.

        Raises:
            WireError: a batch before it is damaged.
        """
        if offset >= self.active.base_offset:  # the common case
            found = self.active.locate(offset)
            return None if found is None else (self.active, found)
        for segment in self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]:
            found = segment.locate(offset)
            if found is not None:
                return segment, found
        return None

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, *, is_bounded: bool, at_least_one: bool
    ) -> FileSlice | None:
        """Return a file range for `PartitionLog.read`; ``is_bounded``: ``upper_offset`` is below the log end offset.

        Raises:
            ProtocolError: CORRUPT_MESSAGE for a damaged batch; UNKNOWN_SERVER_ERROR for a negative ``max_bytes``.
        """
        try:
            found = self.locate(offset)
            if found is None or found[1].base_offset >= upper_offset:
                return None
            segment, batch = found
            limit = segment.locate(upper_offset) if is_bounded else None
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        end = segment.size_bytes if limit is None else limit.position
        if segment.damaged_ranges:
            end = undamaged_end(segment.damaged_ranges, batch.position, end)
            if end <= batch.position:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}.log is damaged at {batch.position}")
        size, least = end - batch.position, batch.size_bytes
        if size < least:
            if batch.position + least > segment.size_bytes:
                text = f"{segment.path}.log: the batch at {batch.position} ends behind the segment ({least} bytes)"
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
            return None  # the upper offset lies within the batch
        if max_bytes < size:
            if max_bytes >= least:
                size = max_bytes
            elif max_bytes < 0:
                raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes} for log read")
            elif at_least_one:
                size = least
            else:
                return None
        return FileSlice(segment.file, batch.position, size)

    def bytes_between(self, offset: int, upper_offset: int | None) -> int | None:
        """Return the size in bytes from the batch that contains ``offset`` up to ``upper_offset`` (None: log end).

        0 if there is no batch. None if ``upper_offset`` is in a later segment, or if a batch cannot be read.
        """
        try:
            found = self.locate(offset)
            if found is None:
                return 0
            segment, batch = found
            if upper_offset is None:
                return segment.size_bytes - batch.position if segment is self.active else None
            limit = segment.locate(upper_offset)
        except WireError:
            return None
        return None if limit is None else max(limit.position - batch.position, 0)

    def is_batch_above(self, offset: int, upper_offset: int) -> bool:
        """Return True if the first batch that ends at or above ``offset`` begins above ``upper_offset`` or is damaged.

        True also if there is no such batch. False if ``offset`` is not above ``upper_offset``.
        """
        if offset <= upper_offset:
            return False
        try:
            found = self.locate(offset)
        except WireError:
            return True
        return found is None or found[1].base_offset > upper_offset

    def batches(self, offset: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of every batch of the log from the one that contains ``offset`` on.

        Raises:
            WireError: a batch on disk is damaged.
        """
        found = self.locate(offset)
        if found is None:
            return
        first, located = found
        for segment in self._segments[self._segments.index(first) :]:
            for _, header, raw in segment.scan(located.position if segment is first else 0):
                yield header, raw

    def aborted_txns_in_slice(self, part: FileSlice, offset: int, log_end: int) -> list[AbortedTxn]:
        """Return the aborted transactions for a Fetch response with the file range ``part``, read at ``offset``.

        Without a later offset index entry it covers the rest of the segment, as in Kafka.

        Source: ``LogSegment.fetchUpperBoundOffset``, ``LocalLog.addAbortedTransactions`` (apache/kafka 4.3.1).

        Raises:
            ProtocolError: as `collect_aborted_txns`.
        """
        found = self.locate(offset)
        if found is None:
            return []
        beyond = found[0].offset_index.upper_bound_offset(part.offset + len(part))
        if beyond is None:
            after = bisect_right(self.base_offsets, found[0].base_offset)
            beyond = self.base_offsets[after] if after < len(self.base_offsets) else log_end
        return self.collect_aborted_txns(offset, beyond)

    def collect_aborted_txns(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``offset`` to ``upper_offset`` (exclusive), in log order.

        Raises:
            ProtocolError: CORRUPT_MESSAGE: a transaction index is malformed.
        """
        out: list[AbortedTxn] = []
        for segment in self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]:
            try:
                entries = segment.aborted_txns
            except CorruptFile as error:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
            for entry in islice(entries, bisect_left(entries, offset, key=_abort_marker_offset), None):
                if entry.first_offset < upper_offset:
                    out.append(entry)
                if entry.last_stable_offset >= upper_offset:
                    return out
        return out

    # ------------------------------------------------------------------ files

    def unflushed(self, recovery_point: int) -> list[LogSegment]:
        """Return the segments with records at or above the recovery point, oldest first; the active one in any case."""
        return self._segments[max(bisect_right(self.base_offsets, recovery_point) - 1, 0) :]

    def close_idle_files(self, recovery_point: int, log_end: int) -> None:
        """Close segment files not used since the last call, except unsynced ones: their sync must report errors."""
        for segment in self._segments[: -len(self.unflushed(recovery_point))]:
            segment.close_if_idle(sealed=True)
        self.active.close_if_idle(sealed=False, keep_open=recovery_point < log_end)

    def write_stale_indexes(self, *, is_active_changed: bool) -> list[str]:
        """Write index files that differ from the indexes in memory, and those of a changed active segment, unsynced.

        Returns:
            The paths that the caller must sync.
        """
        paths = []
        for segment in self._segments:
            if segment.are_index_files_stale or (segment is self.active and is_active_changed):
                segment.write_index_files()
                paths += segment.index_files_to_sync(sealed=True)
        return paths

    def close(self) -> None:
        """Close the files of all segments; a later access opens them again."""
        for segment in self._segments:
            segment.close()


def remove_files(disk: Disk, paths: list[str]) -> None:
    """Delete the files in ``paths`` that exist; called in a thread, since it waits for the disk."""
    for path in paths:
        with suppress(FileNotFoundError):  # the directory was renamed for deletion
            disk.unlink(path)
