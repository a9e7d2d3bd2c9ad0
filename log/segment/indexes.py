"""Offset index, time index and transaction index of a segment.

Offset and time index are sparse and in memory; their files are written when the segment is rolled or closed. After an
unclean shutdown they are rebuilt from the segment, as in Kafka.

Layouts: ``.index`` int32 relative offset, int32 position; ``.timeindex`` int64 timestamp, int32 relative offset;
``.txnindex`` int16 version, int64 producer id, first offset, last offset, last stable offset.
Sources: ``OffsetIndex.java``, ``TimeIndex.java``, ``TransactionIndex.java``, ``AbortedTxn.java`` (apache/kafka 4.3.1).

Time index: KIP-33; transaction index: KIP-98.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import closing
from typing import NamedTuple

from ottla.env.disk import Disk, read_file, write_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TXN_ENTRY = struct.Struct(">hqqqq")
_LITTLE_ENDIAN = sys.byteorder == "little"


# A segment of 1 GiB has 262,144 entries: columns are packed as a whole, in C, since a roll blocks the event loop.
def _unpack_int32s(raw: bytes) -> array[int]:
    """Return ``raw`` decoded as big-endian signed 32-bit integers."""
    ints = array("i", raw)
    if _LITTLE_ENDIAN:
        ints.byteswap()
    return ints


def _pack_int32s(ints: array[int]) -> bytes:
    if _LITTLE_ENDIAN:
        ints.byteswap()
    return ints.tobytes()


def _is_sorted(numbers: array[int]) -> bool:
    """Return True if a sample of the numbers (all, or every nth of over 16,384) never descends and is not negative.

    Damage affects sectors of 512 bytes, 42 entries or more: in the largest index every sixteenth entry is checked.
    """
    some = numbers[:: max(len(numbers) >> 14, 1)].tolist()
    return some == sorted(some) and (not some or (some[0] >= 0 and some[-1] <= numbers[-1]))


def _entry_count(numbers: array[int], start: int) -> int:
    """Return the number of entries before the zeros of a preallocated file; the first ``start`` entries may be zero."""
    if len(numbers) <= start or numbers[-1] != 0:
        return len(numbers)
    return numbers.index(0, start)


class OffsetIndex:
    """Sparse offset index of a segment: last offset of a batch -> position of that batch in the segment file."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        self.positions = array("i")

    def append(self, offset: int, position: int) -> None:
        """Append an entry: last offset and position of a batch; both must be larger than in the previous entry."""
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return the file position of an indexed batch at or before the one that contains ``offset``, 0 if none is."""
        at = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[at - 1] if at else 0

    def entries_below(self, offset: int) -> OffsetIndex:
        """Return a new index with the entries of batches that end below ``offset``; this index is not changed."""
        index, at = OffsetIndex(self.base_offset), bisect_left(self.offsets, offset - self.base_offset)
        index.offsets, index.positions = self.offsets[:at], self.positions[:at]
        return index

    def upper_bound_offset(self, position: int) -> int | None:
        """Return the last offset of the first indexed batch at or after ``position``, as ``fetchUpperBoundOffset``.

        None if there is no such entry.
        """
        at = bisect_left(self.positions, position)
        return self.base_offset + self.offsets[at] if at < len(self.positions) else None

    def pack(self) -> bytes:
        """Return the contents of the ``.index`` file."""
        ints = array("i", bytes(len(self.offsets) * OFFSET_ENTRY_BYTES))
        ints[0::2] = self.offsets
        ints[1::2] = self.positions
        return _pack_int32s(ints)

    @classmethod
    def unpack(cls, base_offset: int, raw: bytes, path: str = "") -> OffsetIndex:
        """Return the index in the contents ``raw`` of an ``.index`` file; an entry of zeros ends a preallocated file.

        Raises:
            CorruptFile: a size that is no multiple of 8, or entries that are negative or out of order.
        """
        if len(raw) % OFFSET_ENTRY_BYTES:
            raise CorruptFile(f"Index file {path} is corrupt: {len(raw)} bytes, not a multiple of {OFFSET_ENTRY_BYTES}")
        ints = _unpack_int32s(raw)
        offsets, positions = ints[0::2], ints[1::2]
        end = _entry_count(offsets, 0)
        if end < len(offsets) and positions[end] != 0:
            raise CorruptFile(f"Index file {path} is corrupt: entry {end} has offset 0 and position {positions[end]}")
        index = cls(base_offset)
        index.offsets, index.positions = offsets[:end], positions[:end]
        if not (_is_sorted(index.offsets) and _is_sorted(index.positions)):
            raise CorruptFile(f"Index file {path} is corrupt: entries are negative or out of order")
        return index


class TimeIndex:
    """Sparse time index of a segment: largest timestamp (ms) so far -> last offset of the batch with that timestamp."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("i")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Append an entry if ``timestamp`` (ms) is larger than the timestamp of the last entry."""
        if timestamp > self.last_entry()[0]:
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self.base_offset)

    def entries_below(self, offset: int) -> TimeIndex:
        """Return an index in memory with the entries whose offset is below ``offset``; this index is not changed."""
        index, at = TimeIndex(self.base_offset), bisect_left(self.offsets, offset - self.base_offset)
        index.timestamps, index.offsets = self.timestamps[:at], self.offsets[:at]
        return index

    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry; (-1, base offset) of an empty index."""
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def lookup(self, timestamp: int) -> int:
        """Return an offset below which every record is older than ``timestamp`` (ms), from which to search on."""
        at = bisect_right(self.timestamps, timestamp - 1)
        return self.base_offset + self.offsets[at - 1] if at else self.base_offset

    def pack(self) -> bytes:
        """Return the contents of the ``.timeindex`` file."""
        halves = array("i", self.timestamps.tobytes())
        high, low = (1, 0) if _LITTLE_ENDIAN else (0, 1)
        ints = array("i", bytes(len(self.offsets) * TIME_ENTRY_BYTES))
        ints[0::3] = halves[high::2]
        ints[1::3] = halves[low::2]
        ints[2::3] = self.offsets
        return _pack_int32s(ints)

    @classmethod
    def unpack(cls, base_offset: int, raw: bytes, path: str = "") -> TimeIndex:
        """Return the index in the contents ``raw`` of a ``.timeindex`` file; zeros end a preallocated file.

        Raises:
            CorruptFile: a size that is no multiple of 12, or entries that are negative or out of order.
        """
        if len(raw) % TIME_ENTRY_BYTES:
            raise CorruptFile(f"Index file {path} is corrupt: {len(raw)} bytes, not a multiple of {TIME_ENTRY_BYTES}")
        ints = _unpack_int32s(raw)
        high, low = (1, 0) if _LITTLE_ENDIAN else (0, 1)
        halves = array("i", bytes(len(ints) // 3 * 8))
        halves[high::2] = ints[0::3]
        halves[low::2] = ints[1::3]
        timestamps, offsets = array("q", halves.tobytes()), ints[2::3]
        zeros = bool(timestamps) and timestamps[0] == offsets[0] == 0
        end = 0 if zeros else _entry_count(timestamps, 1)  # the first entry may have timestamp 0
        if end < len(timestamps) and offsets[end] != 0:
            raise CorruptFile(f"Index file {path} is corrupt: entry {end} has timestamp 0 and offset {offsets[end]}")
        index = cls(base_offset)
        index.timestamps, index.offsets = timestamps[:end], offsets[:end]
        if not (_is_sorted(index.timestamps) and _is_sorted(index.offsets)):
            raise CorruptFile(f"Index file {path} is corrupt: entries are negative or out of order")
        return index


def read_last_time_entry(disk: Disk, path: str, base_offset: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the last entry of a ``.timeindex`` file, reading its last two entries only.

    None if the file is missing, empty or malformed.
    """
    try:
        with closing(disk.open(path, readonly=True)) as file:
            size = file.size()
            tail = file.pread(2 * TIME_ENTRY_BYTES, max(size - 2 * TIME_ENTRY_BYTES, 0))
        index = TimeIndex.unpack(base_offset, tail)
    except (CorruptFile, OSError):
        return None
    return None if size % TIME_ENTRY_BYTES or not any(tail[-TIME_ENTRY_BYTES:]) else index.last_entry()


class AbortedTxn(NamedTuple):
    """Aborted transaction; ``last_offset`` is the offset of the marker, ``last_stable_offset`` the LSO after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_txn_index(disk: Disk, path: str) -> list[AbortedTxn]:
    """Return the entries of a ``.txnindex`` file; empty if it is missing.

    Raises:
        CorruptFile: the file is malformed.
    """
    return unpack_txn_index(read_file(disk, path), path) if disk.exists(path) else []


def unpack_txn_index(raw: bytes, path: str) -> list[AbortedTxn]:
    """Return the entries in the contents ``raw`` of a ``.txnindex`` file.

    Raises:
        CorruptFile: the contents are malformed.
    """
    if len(raw) % _TXN_ENTRY.size:
        raise CorruptFile(f"Index file {path} is corrupt: {len(raw)} bytes, not a multiple of {_TXN_ENTRY.size}")
    out = []
    last = -1
    for version, *fields in _TXN_ENTRY.iter_unpack(raw):
        entry = AbortedTxn(*fields)
        if version != 0 or entry.last_offset <= last:
            raise CorruptFile(
                f"Index file {path} is corrupt: version {version}, offset {entry.last_offset} after {last}"
            )
        last = entry.last_offset
        out.append(entry)
    return out


def rewrite_txn_index(disk: Disk, path: str, entries: list[AbortedTxn]) -> None:
    """Replace a ``.txnindex`` file, unsynced, if its contents differ from ``entries``.

    Without entries it is removed, unless it is missing or empty already.
    """
    try:
        if read_txn_index(disk, path) == entries:
            return
    except CorruptFile:
        pass
    write_txn_index(disk, path, entries)


def append_to_txn_index(disk: Disk, path: str, count: int, entry: AbortedTxn) -> None:
    """Write an entry into a ``.txnindex`` file, created if missing, after its first ``count`` entries, unsynced."""
    with closing(disk.open(path, create=True)) as file:
        file.pwrite(_TXN_ENTRY.pack(0, *entry), count * _TXN_ENTRY.size)


def write_txn_index(disk: Disk, path: str, entries: list[AbortedTxn], *, sync: bool = False) -> None:
    """Replace a ``.txnindex`` file by ``entries``; without entries remove it.

    ``sync``: its contents, not the rename.
    """
    if entries:
        write_file(disk, path, b"".join(_TXN_ENTRY.pack(0, *entry) for entry in entries), sync=sync, sync_dir=False)
    elif disk.exists(path):
        disk.unlink(path)
