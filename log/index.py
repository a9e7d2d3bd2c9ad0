"""The three indexes of a segment: by offset, by time, of aborted transactions.

Offset and time index are sparse and live in memory; their files are written when the segment is rolled or closed.
A node that dies without closing rebuilds them from the segment, as Kafka does, so nothing rests on them.

Layouts: ``.index`` int32 relative offset, int32 position; ``.timeindex`` int64 timestamp, int32 relative offset;
``.txnindex`` int16 version, int64 producer id, first offset, last offset, last stable offset.
Sources: ``OffsetIndex.java``, ``TimeIndex.java``, ``TransactionIndex.java``, ``AbortedTxn.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

from ottla.log.checkpoints import CorruptFile
from ottla.world.disk import Disk, read_file, write_file

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")


class OffsetIndex:
    """Relative offset of a batch's last record -> position of that batch, for some of the batches."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        self.positions = array("i")

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets only grow."""
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds ``offset``."""
        at = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[at - 1] if at else 0

    def pack(self) -> bytes:
        """The file's bytes."""
        return b"".join(map(_OFFSET_ENTRY.pack, self.offsets, self.positions))

    @classmethod
    def unpack(cls, base_offset: int, raw: bytes, path: str = "") -> OffsetIndex:
        """Read a file's bytes.

        Raises:
            CorruptFile: a size that is no multiple of 8, or entries that do not grow.
        """
        if len(raw) % _OFFSET_ENTRY.size:
            raise CorruptFile(f"{path}: {len(raw)} bytes are no offset index")
        index = cls(base_offset)
        last = 0
        for relative, position in _OFFSET_ENTRY.iter_unpack(raw):
            if (relative, position) == (0, 0):
                break  # the rest of a preallocated file
            if relative <= last:
                raise CorruptFile(f"{path}: offset {relative} after {last}")
            index.offsets.append(relative)
            index.positions.append(position)
            last = relative
        return index


class TimeIndex:
    """Largest timestamp so far -> relative offset of the batch that brought it."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("i")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it says something new: timestamps only grow."""
        if timestamp > self.last()[0]:
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) where there is none."""
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def lookup(self, timestamp: int) -> int:
        """An offset before which no record is as late as ``timestamp``."""
        at = bisect_right(self.timestamps, timestamp - 1)
        return self.base_offset + self.offsets[at - 1] if at else self.base_offset

    def pack(self) -> bytes:
        """The file's bytes."""
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def unpack(cls, base_offset: int, raw: bytes, path: str = "") -> TimeIndex:
        """Read a file's bytes.

        Raises:
            CorruptFile: a size that is no multiple of 12, or entries that do not grow.
        """
        if len(raw) % _TIME_ENTRY.size:
            raise CorruptFile(f"{path}: {len(raw)} bytes are no time index")
        index = cls(base_offset)
        last = -1
        for timestamp, relative in _TIME_ENTRY.iter_unpack(raw):
            if timestamp <= last or relative < 0:
                if (timestamp, relative) == (0, 0):
                    break  # the rest of a preallocated file
                raise CorruptFile(f"{path}: timestamp {timestamp} after {last}")
            index.timestamps.append(timestamp)
            index.offsets.append(relative)
            last = timestamp
        return index


class AbortedTxn(NamedTuple):
    """One aborted transaction: ``last_offset`` is its marker's, ``last_stable_offset`` the one right after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_aborted(disk: Disk, path: str) -> list[AbortedTxn]:
    """The entries of a ``.txnindex``; an absent file has none.

    Raises:
        CorruptFile: not such a file.
    """
    if not disk.exists(path):
        return []
    raw = read_file(disk, path)
    if len(raw) % _TXN_ENTRY.size:
        raise CorruptFile(f"{path}: {len(raw)} bytes are no transaction index")
    out = []
    last = -1
    for version, *fields in _TXN_ENTRY.iter_unpack(raw):
        entry = AbortedTxn(*fields)
        if version != 0 or entry.last_offset <= last:
            raise CorruptFile(f"{path}: version {version}, offset {entry.last_offset} after {last}")
        last = entry.last_offset
        out.append(entry)
    return out


def append_aborted(disk: Disk, path: str, count: int, entry: AbortedTxn) -> None:
    """Add an entry behind the ``count`` there are."""
    file = disk.open(path, create=True)
    try:
        file.pwrite(_TXN_ENTRY.pack(0, *entry), count * _TXN_ENTRY.size)
    finally:
        file.close()


def write_aborted(disk: Disk, path: str, entries: list[AbortedTxn], *, sync: bool = False) -> None:
    """Write a ``.txnindex``; nothing is written for no entries, and an older file is removed."""
    if entries:
        write_file(disk, path, b"".join(_TXN_ENTRY.pack(0, *entry) for entry in entries), sync=sync, sync_dir=False)
    elif disk.exists(path):
        disk.unlink(path)
