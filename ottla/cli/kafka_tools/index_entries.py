"""Entries of ``.index`` and ``.timeindex`` files as ``kafka-dump-log`` prints them, in any order; and its sanity check.

A broker rejects entries that are out of order; the tool shows them.

Source: ``DumpLogSegments``, ``OffsetIndex``, ``TimeIndex`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.segment.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex


def offset_entries(base: int, raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, position) of the entries of an ``.index`` file; an incomplete one at the end is left out.

    The entries end before the first with the base offset that is not the first of all: zeros of a preallocated file.
    """
    whole = raw[: len(raw) - len(raw) % OFFSET_ENTRY_BYTES]
    for number, (relative, position) in enumerate(struct.iter_unpack(">ii", whole)):
        if relative == 0 and number:
            return
        yield base + relative, position


def time_entries(base: int, raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield (timestamp in ms, offset) of the entries of a ``.timeindex`` file, to the same end as `offset_entries`."""
    whole = raw[: len(raw) - len(raw) % TIME_ENTRY_BYTES]
    for number, (timestamp, relative) in enumerate(struct.iter_unpack(">qi", whole)):
        if relative == 0 and number:
            return
        yield timestamp, base + relative


def unchecked_offset_index(base: int, raw: bytes) -> OffsetIndex:
    """Return an index of `offset_entries`, for lookups; if they are out of order, a lookup may find a wrong one."""
    index = OffsetIndex(base)
    for offset, position in offset_entries(base, raw):
        index.append(offset, position)
    return index


def require_position(position: int, path: str) -> None:
    """Check the position of an entry in the segment at ``path``, without ``.log``; raise CorruptFile if negative."""
    if position < 0:
        raise CorruptFile(f"Invalid position: {position} in read from {path}.log")


def check_offset_index(base: int, raw: bytes, path: str) -> None:
    """Check the last entry and the size of an ``.index`` file, as a broker of Kafka does when it starts.

    Raises:
        CorruptFile: the last offset is below the base offset, or the size is no multiple of 8.
    """
    name = os.path.abspath(path)
    count = len(raw) // OFFSET_ENTRY_BYTES
    last = base + struct.unpack_from(">i", raw, (count - 1) * OFFSET_ENTRY_BYTES)[0] if count else base
    if last < base:
        raise CorruptFile(
            f"Corrupt index found, index file {name} has non-zero size but the last offset is {last} which is less "
            f"than the base offset {base}"
        )
    _check_size("Index", name, len(raw), OFFSET_ENTRY_BYTES)


def check_time_index(base: int, raw: bytes, path: str) -> None:
    """Check the last entry and the size of a ``.timeindex`` file, as a broker of Kafka does when it starts.

    Raises:
        CorruptFile: the last timestamp is below the first, the last offset below the base offset, or the size is no
            multiple of 12.
    """
    name = os.path.abspath(path)
    start = f"Corrupt time index found, time index file ({name}) has non-zero size but the last"
    count = len(raw) // TIME_ENTRY_BYTES
    if count:
        first = struct.unpack_from(">q", raw)[0]
        timestamp, relative = struct.unpack_from(">qi", raw, (count - 1) * TIME_ENTRY_BYTES)
        if timestamp < first:
            raise CorruptFile(f"{start} timestamp is {timestamp} which is less than the first timestamp {first}")
        if relative < 0:
            raise CorruptFile(f"{start} offset is {base + relative} which is less than the first offset {base}")
    _check_size("Time index", name, len(raw), TIME_ENTRY_BYTES)


def _check_size(kind: str, name: str, size: int, entry_bytes: int) -> None:
    if size % entry_bytes:
        raise CorruptFile(
            f"{kind} file {name} is corrupt, found {size} bytes which is neither positive nor a multiple of "
            f"{entry_bytes}"
        )
