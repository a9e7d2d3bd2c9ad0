"""Segment of a log: a file of batches with its offset, time and transaction index.

Source: ``LogSegment.java``, ``FileRecords.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from ottla.env.disk import Disk, File, read_file, write_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.log_config import LogConfig
from ottla.log.segment.batch_scan import ByteRange, LogOffsetPosition, iterate_batches, locate_batch
from ottla.log.segment.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    AbortedTxn,
    OffsetIndex,
    TimeIndex,
    append_to_txn_index,
    read_last_time_entry,
    read_txn_index,
    write_txn_index,
)
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, MAGIC_OFFSET, BatchHeader, parse_header

MAX_RELATIVE_OFFSET = 2**31 - 1


class SegmentOffsetOverflow(WireError):
    """Offset is more than 2^31 - 1 above the segment's base offset, the range of its indexes."""


MAX_UNSYNCED_INDEX_BYTES = 1536
"""Size below which an unsynced index file that a power failure tore (at 512 bytes) is detected when loaded."""


class IndexedBatch(NamedTuple):
    """Position and last offset of a batch that has an index entry."""

    position: int
    last_offset: int


SEGMENT_START = IndexedBatch(0, -1)


def segment_file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's file: base offset with 20 digits and ``suffix``, ``00000000000000000042.log``."""
    return f"{offset:020d}{suffix}"


class LogSegment:
    """Segment of a log: batches from ``base_offset`` on. The indexes of a loaded segment are read when first used."""

    __slots__ = (
        "_aborted_txns",
        "_disk",
        "_file",
        "_is_pinned",
        "_max_timestamp_loaded",
        "_offset_index",
        "_time_index",
        "are_index_files_stale",
        "base_offset",
        "bytes_since_index_entry",
        "config",
        "created_ms",
        "damaged_ranges",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "size_bytes",
        "used_since_idle_check",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, settings: LogConfig, created_ms: int) -> None:
        self._disk = disk
        self.path = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.config = settings
        self.created_ms = created_ms
        self._file: File | None = None
        self._is_pinned = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted_txns: list[AbortedTxn] | None = None
        self._max_timestamp_loaded = False
        self.size_bytes = 0
        self.bytes_since_index_entry = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self.damaged_ranges: list[ByteRange] = []
        """Byte ranges that scrubbing found damaged; they are never served."""
        self.used_since_idle_check = False
        """True if `file` was accessed since the last `close_if_idle`."""
        self.are_index_files_stale = False
        """True if the index files on disk differ from the indexes in memory."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, settings: LogConfig, now_ms: int) -> LogSegment:
        """Create the ``.log`` and empty index files of a new segment, unsynced; return it. ``now_ms``: wall clock."""
        segment = cls.create_without_indexes(disk, directory, base_offset, settings, now_ms)
        for suffix in (".index", ".timeindex"):
            disk.open(segment.path + suffix, create=True).close()
        segment.are_index_files_stale = False
        return segment

    @classmethod
    def create_without_indexes(
        cls, disk: Disk, directory: str, base_offset: int, settings: LogConfig, created_ms: int, suffix: str = ""
    ) -> LogSegment:
        """Create, or empty, the ``.log`` file of a new segment, with state suffix ``suffix``; return the segment."""
        segment = cls(disk, directory, base_offset, settings, created_ms)
        segment._file = disk.open(f"{segment.path}.log{suffix}", create=True)
        segment._file.truncate(0)
        segment._offset_index = OffsetIndex(base_offset)
        segment._time_index = TimeIndex(base_offset)
        segment._aborted_txns = []
        segment.are_index_files_stale = segment._max_timestamp_loaded = True
        return segment

    @classmethod
    def load(cls, disk: Disk, directory: str, base_offset: int, settings: LogConfig) -> LogSegment:
        """Return an existing segment without reading it; its index files will be trusted unless malformed."""
        found = disk.stat(f"{directory}/{base_offset:020d}.log")
        segment = cls(disk, directory, base_offset, settings, found.mtime_ms)
        segment.size_bytes = found.size_bytes
        return segment

    @classmethod
    def open_pinned(
        cls, disk: Disk, directory: str, base: int, settings: LogConfig, created_ms: int, suffix: str
    ) -> LogSegment:
        """Open a segment whose files have the state suffix ``suffix``; file and indexes stay loaded until `unpin`."""
        segment = cls(disk, directory, base, settings, created_ms)
        segment._file = disk.open(f"{segment.path}.log{suffix}")
        segment.size_bytes = segment._file.size()
        segment._is_pinned = True
        segment._load_indexes(suffix)
        segment._aborted_txns = read_txn_index(disk, f"{segment.path}.txnindex{suffix}")
        return segment

    def set_directory(self, directory: str) -> None:
        """Set the path after the partition's directory was renamed to ``directory``; no file is touched."""
        self.path = f"{directory}/{segment_file_name(self.base_offset, '')}"

    def update_config(self, settings: LogConfig) -> None:
        """Apply changed topic settings from the next append on."""
        self.config = settings

    def unpin(self) -> None:
        """Allow the file to be closed and the indexes to be unloaded, after the files have their final names."""
        self._is_pinned = False

    def is_open_file(self, file: File) -> bool:
        """Return True if ``file`` is the currently open file of this segment, not one that was closed or replaced."""
        return self._file is file

    @property
    def file(self) -> File:
        """Segment file, opened if it is not open."""
        self.used_since_idle_check = True
        file = self._file  # another thread may read while the event loop closes it as idle
        if file is None:
            file = self._file = self._disk.open(self.path + ".log")
        return file

    @property
    def is_open(self) -> bool:
        """True if the segment file is open."""
        return self._file is not None

    @property
    def offset_index(self) -> OffsetIndex:
        """Offset index; loaded when first used, or rebuilt from the batches if its file is missing or malformed."""
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """Time index; loaded when first used, or rebuilt from the batches if its file is missing or malformed."""
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def aborted_txns(self) -> list[AbortedTxn]:
        """Aborted transactions with their marker in this segment, loaded once; CorruptFile if the file is malformed."""
        if self._aborted_txns is None:
            self._aborted_txns = read_txn_index(self._disk, self.path + ".txnindex")
        return self._aborted_txns

    def load_max_timestamp(self) -> None:
        """Load `max_timestamp` (ms) from the time index file if it is unknown; unloading the index keeps it."""
        if not self._max_timestamp_loaded:
            found = read_last_time_entry(self._disk, f"{self.path}.timeindex", self.base_offset)
            if found is None:
                self._load_indexes()
            else:
                self._max_timestamp_loaded, (self.max_timestamp, self.max_timestamp_offset) = True, found

    def _load_indexes(self, suffix: str = "") -> None:
        self._max_timestamp_loaded = True
        try:
            raw = read_file(self._disk, f"{self.path}.index{suffix}")
            self._offset_index = OffsetIndex.unpack(self.base_offset, raw, self.path + ".index")
            raw = read_file(self._disk, f"{self.path}.timeindex{suffix}")
            self._time_index = TimeIndex.unpack(self.base_offset, raw, self.path + ".timeindex")
            if self._offset_index.positions and self._offset_index.positions[-1] >= self.size_bytes:
                raise CorruptFile(f"Index file {self.path}.index is corrupt: an entry points beyond the segment")
            if self.size_bytes and not self._time_index.timestamps:
                # a power failure may leave an empty index file
                raise CorruptFile(f"Index file {self.path}.timeindex is corrupt: empty")
        except (CorruptFile, OSError):
            self.rebuild_indexes()
        else:
            self.max_timestamp, self.max_timestamp_offset = self._time_index.last_entry()

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index in memory from the batches up to the first malformed one."""
        self.reset_indexes()
        try:
            for position, header, _ in self.scan():
                self.index_batch(header, position)
        except WireError:
            pass

    def reset_indexes(self) -> None:
        """Clear offset and time index in memory before `index_batch` refills them."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self.are_index_files_stale = self._max_timestamp_loaded = True
        self.bytes_since_index_entry = 0
        self.max_timestamp, self.max_timestamp_offset = -1, self.base_offset
        self.first_timestamp = None

    def truncate_indexes(self, offset: int) -> IndexedBatch:
        """Remove entries at or above ``offset`` from both indexes, in memory; return the last one of the offset index.

        `SEGMENT_START` if it has none. The files are stale then; the caller indexes the batches from that entry on.
        """
        index, times = self.offset_index.entries_below(offset), self.time_index.entries_below(offset)
        first = self.first_timestamp
        self.reset_indexes()
        self._offset_index, self._time_index = index, times
        if not index.positions:
            self._time_index = TimeIndex(self.base_offset)
            return SEGMENT_START
        self.max_timestamp, self.max_timestamp_offset = times.last_entry()
        self.first_timestamp = first
        return IndexedBatch(index.positions[-1], self.base_offset + index.offsets[-1])

    def index_batch(self, header: BatchHeader, position: int) -> None:
        """Count a batch at a file position; index it if the last entry is ``index.interval.bytes`` before it."""
        self._index_entry(header.last_offset, header.max_timestamp, header.size_bytes, position)

    def resume_index(self, size_bytes: int) -> None:
        """Set the bytes since the last index entry, so that appends continue the loaded indexes."""
        self.bytes_since_index_entry = size_bytes

    def _index_entry(self, last_offset: int, max_timestamp: int, size_bytes: int, position: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index_entry > self.config.index_interval_bytes:
            if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                raise SegmentOffsetOverflow(f"{self.path}.log: offset {last_offset}")
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
            self.are_index_files_stale = True
        self.bytes_since_index_entry += size_bytes

    def append(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch, with its offsets set, at the end of the segment and index it; no sync.

        Raises OSError if it could not be written; the segment is then truncated to its previous size.
        """
        size = len(data)
        position = self.size_bytes
        try:
            self.file.pwrite(data, position)
        except OSError:
            self.file.truncate(position)
            raise
        self.size_bytes = position + size
        self._index_entry(last_offset, max_timestamp, size, position)

    def should_roll(self, now_ms: int, size_bytes: int, max_timestamp: int, last_offset: int) -> bool:
        """Return True if the next batch needs a new segment: by offset range, or if not empty by size, age or index."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.size_bytes == 0:
            return False
        settings = self.config
        if self.size_bytes > settings.segment_bytes - size_bytes:
            return True
        longest_ms, index, times = settings.max_segment_age_ms, self._offset_index, self._time_index
        if index is None or times is None:
            index, times = self.offset_index, self.time_index
        if self.first_timestamp is None:
            raw = self.file.pread(HEADER_BYTES, 0)
            if len(raw) == HEADER_BYTES and raw[MAGIC_OFFSET] == 2:
                self.first_timestamp = parse_header(raw).max_timestamp
        if settings.segment_jitter_ms:
            longest_ms -= crc32(self.path.encode()) % min(settings.segment_jitter_ms, longest_ms + 1)
        first = self.first_timestamp
        waited = now_ms - self.created_ms if first is None or first < 0 else max_timestamp - first
        must = waited > longest_ms or len(index.offsets) >= settings.segment_index_bytes // 8
        return must or len(times.offsets) >= settings.segment_index_bytes // 12 - 1

    def locate(self, offset: int) -> LogOffsetPosition | None:
        """Return position, size and offsets of the first batch that ends at or above ``offset``; None if there is none.

        Raises WireError if a batch before it has an invalid size.
        """
        return locate_batch(self, offset, self.offset_index.lookup(offset))

    def scan(self, position: int = 0, *, check: bool = True) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (file position, header, bytes) of every batch from ``position`` on; WireError as `iterate_batches`."""
        return iterate_batches(self, position, check=check)

    def add_aborted_txn(self, entry: AbortedTxn) -> None:
        """Append an aborted transaction to the transaction index and its file."""
        append_to_txn_index(self._disk, self.path + ".txnindex", len(self.aborted_txns), entry)
        self.aborted_txns.append(entry)

    def truncate_txn_index(self, offset: int) -> None:
        """Remove aborted transactions whose marker is at or above ``offset`` from the index and its file."""
        kept = [entry for entry in self.aborted_txns if entry.last_offset < offset]
        if len(kept) != len(self.aborted_txns):
            write_txn_index(self._disk, self.path + ".txnindex", kept)
            self._aborted_txns = kept

    def reset_txn_index(self) -> None:
        """Clear the transaction index in memory before recovery refills it: its file may be wrong after a crash."""
        self._aborted_txns = []

    def truncate(self, size_bytes: int) -> None:
        """Truncate the segment file to ``size_bytes``, unsynced; the caller corrects the indexes."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes

    def write_index_files(self, *, sync: bool = False, suffix: str = "") -> None:
        """Write offset and time index, if loaded, to their files with state suffix ``suffix``; unsynced by default."""
        if self._offset_index is None or self._time_index is None:
            return
        self._time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        for ending, raw in ((".index", self._offset_index.pack()), (".timeindex", self._time_index.pack())):
            path = f"{self.path}{ending}{suffix}"
            if not sync and self._disk.exists(path):
                self._disk.unlink(path)  # a rename over an existing file makes some file systems write it at once
            write_file(self._disk, path, raw, sync=sync, sync_dir=False)
        self.are_index_files_stale = False

    def close_if_idle(self, *, sealed: bool, keep_open: bool = False) -> None:
        """Close the file unless pinned or used since the last call; also unload the indexes of a ``sealed`` segment."""
        if self.used_since_idle_check or self._is_pinned or keep_open:
            self.used_since_idle_check = False
            return
        self._file = None  # closed when the last response that sends from it is done
        if sealed and self._offset_index is not None:
            if self.are_index_files_stale:
                self.write_index_files()
            self._offset_index = self._time_index = self._aborted_txns = None

    def index_files_to_sync(self, *, sealed: bool) -> list[str]:
        """Return the paths of index files to sync in a flush: those whose loss the next start would not detect."""
        out = [f"{self.path}.txnindex"] if self._aborted_txns else []
        index, times = self._offset_index, self._time_index
        if sealed and (index is None or len(index.offsets) * OFFSET_ENTRY_BYTES >= MAX_UNSYNCED_INDEX_BYTES):
            out.append(f"{self.path}.index")
        if sealed and (times is None or len(times.offsets) * TIME_ENTRY_BYTES >= MAX_UNSYNCED_INDEX_BYTES):
            out.append(f"{self.path}.timeindex")
        return out

    def fsync(self) -> None:
        """Sync the segment file, waiting for the disk; index files are not synced."""
        self.file.fsync()

    def detach_file(self) -> None:
        """Drop the open file without closing it: it is closed when the last response that sends from it is done."""
        self._file = None

    def close(self) -> None:
        """Close the segment file; the next access opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
