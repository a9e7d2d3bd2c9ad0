"""Offset and time indexes: lookups, file contents, and corrupt files.

Sources: ``OffsetIndex.java``, ``TimeIndex.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
import struct

import pytest

from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.segment.indexes import OffsetIndex, TimeIndex

BASE = 5_000_000_000
OFFSETS = struct.Struct(">ii")
TIMES = struct.Struct(">qi")


def offset_file(*entries: tuple[int, int]) -> bytes:
    return b"".join(OFFSETS.pack(*entry) for entry in entries)


def time_file(*entries: tuple[int, int]) -> bytes:
    return b"".join(TIMES.pack(*entry) for entry in entries)


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for offset, position in entries:
        index.append(BASE + offset, position)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(BASE)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, BASE + offset)
    return index


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_index_files_hold_big_endian_entries(count: int) -> None:
    rng = random.Random(count)
    offsets = sorted(rng.sample(range(1, 2**31), count))
    positions = sorted(rng.sample(range(2**31), count))
    times = sorted(rng.sample(range(2**50), count))
    index, by_time = offset_index(*zip(offsets, positions, strict=True)), time_index(*zip(times, offsets, strict=True))
    assert index.pack() == offset_file(*zip(offsets, positions, strict=True))
    assert by_time.pack() == time_file(*zip(times, offsets, strict=True))
    again = OffsetIndex.unpack(BASE, index.pack())
    assert (list(again.offsets), list(again.positions), again.base_offset) == (offsets, positions, BASE)
    back = TimeIndex.unpack(BASE, by_time.pack())
    assert (list(back.timestamps), list(back.offsets), back.base_offset) == (times, offsets, BASE)


LOOKUPS = [(0, 0), (9, 0), (10, 100), (19, 100), (20, 250), (30, 900), (2**31, 900)]


@pytest.mark.parametrize(("offset", "position"), LOOKUPS)
def test_offset_index_lookup_returns_last_entry_at_or_before_offset(offset: int, position: int) -> None:
    assert offset_index((10, 100), (20, 250), (30, 900)).lookup(BASE + offset) == position


@pytest.mark.parametrize(("position", "offset"), [(0, 10), (100, 10), (101, 20), (250, 20), (251, 30), (900, 30)])
def test_upper_bound_offset_returns_first_entry_at_or_after_position(position: int, offset: int) -> None:
    assert offset_index((10, 100), (20, 250), (30, 900)).upper_bound_offset(position) == BASE + offset


def test_upper_bound_offset_after_last_entry_returns_none() -> None:
    assert offset_index((10, 100)).upper_bound_offset(101) is None
    assert offset_index().upper_bound_offset(0) is None


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 0), (99, 0), (100, 0), (101, 7), (200, 7), (201, 9)])
def test_time_index_lookup_returns_offset_with_only_earlier_records_before(timestamp: int, offset: int) -> None:
    assert time_index((100, 7), (200, 9)).lookup(timestamp) == BASE + offset


def test_time_index_append_ignores_entries_that_are_not_later() -> None:
    index = time_index((-1, 3), (100, 7), (100, 8), (99, 9), (101, 10))
    assert list(index.timestamps) == [100, 101]
    assert list(index.offsets) == [7, 10]
    assert index.last_entry() == (101, BASE + 10)
    assert time_index().last_entry() == (-1, BASE)


BAD_OFFSETS = [
    ("7 bytes", bytes(7)),
    ("9 bytes", offset_file((1, 0)) + b"\x00"),
    ("an offset below the one before", offset_file((5, 10), (4, 20))),
    ("a position below the one before", offset_file((5, 10), (6, 9))),
    ("a negative offset", offset_file((-5, 10), (6, 19))),
    ("a negative position", offset_file((5, -10), (6, 19))),
    ("zeros in the middle", offset_file((5, 10), (0, 0), (6, 30))),
    ("a position without an offset at the end", offset_file((5, 10), (0, 30))),
    ("the last of many below the others", offset_file(*((i + 1, i) for i in range(40_000)), (5, 50_000))),
    ("a damaged sector of a large one", offset_file(*((i + 1, i) for i in range(262_144)))[:80_000] + b"\x55" * 512
     + offset_file(*((i + 1, i) for i in range(262_144)))[80_512:]),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "raw"), BAD_OFFSETS, ids=[row[0] for row in BAD_OFFSETS])
def test_offset_index_unpack_damaged_file_raises_corrupt_file(damage: str, raw: bytes) -> None:
    with pytest.raises(CorruptFile):
        OffsetIndex.unpack(BASE, raw, "x")


BAD_TIMES = [
    ("11 bytes", bytes(11)),
    ("a time below the one before", time_file((5, 10), (4, 20))),
    ("an offset below the one before", time_file((5, 10), (6, 9))),
    ("a negative time", time_file((-5, 10), (6, 19))),
    ("a negative offset", time_file((5, -10), (6, 19))),
    ("zeros in the middle", time_file((5, 10), (0, 0), (6, 30))),
    ("an offset without a time at the end", time_file((5, 10), (0, 30))),
]


@pytest.mark.parametrize(("damage", "raw"), BAD_TIMES, ids=[row[0] for row in BAD_TIMES])
def test_time_index_unpack_damaged_file_raises_corrupt_file(damage: str, raw: bytes) -> None:
    with pytest.raises(CorruptFile):
        TimeIndex.unpack(BASE, raw, "x")


def test_index_unpack_skips_zeros_of_preallocated_file() -> None:
    assert list(OffsetIndex.unpack(BASE, offset_file((5, 10), (0, 0), (0, 0))).positions) == [10]
    assert not OffsetIndex.unpack(BASE, bytes(80)).offsets
    index = TimeIndex.unpack(BASE, time_file((5, 10), (0, 0), (0, 0)))
    assert (list(index.timestamps), list(index.offsets)) == ([5], [10])
    assert not TimeIndex.unpack(BASE, bytes(24)).timestamps
    assert list(TimeIndex.unpack(BASE, time_file((0, 3), (0, 0))).offsets) == [3], (
        "a first entry with timestamp 0 is valid"
    )


def test_index_unpack_accepts_first_entry_with_zero() -> None:
    assert list(OffsetIndex.unpack(BASE, offset_file((5, 0), (6, 9))).positions) == [0, 9]
    assert list(TimeIndex.unpack(BASE, time_file((5, 0), (6, 9))).offsets) == [0, 9]
