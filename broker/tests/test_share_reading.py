"""Which batches of a range of a file are whole: the range ends where its bytes were counted, not where a batch does."""

from __future__ import annotations

import pytest

from ottla.broker.share.acquiring import Acquired
from ottla.broker.share.reading import WINDOW_BYTES, batches_in, sliced
from ottla.broker.tests.world import VirtualEnv
from ottla.wire import records as r
from ottla.world.disk import FileSlice


def part_of(*batches: bytes) -> FileSlice:
    disk = VirtualEnv().disk
    disk.makedirs("/d")
    file = disk.open("/d/log", create=True)
    raw = b"".join(batches)
    file.pwrite(raw, 0)
    return FileSlice(file, 0, len(raw))


def batch(base_offset: int, count: int, value: bytes = b"value") -> bytes:
    raw = bytearray(r.build([r.NewRecord(None, value, 5)] * count))
    raw[:8] = base_offset.to_bytes(8, "big")
    return bytes(raw)


FIRST, SECOND = batch(0, 3), batch(3, 2)


@pytest.mark.parametrize("size", range(len(FIRST), len(FIRST) + len(SECOND) + 1))
def test_a_batch_that_is_cut_off_anywhere_is_left_out(size: int) -> None:
    part = part_of(FIRST, SECOND)
    whole = [(0, 2), (3, 4)] if size == len(part) else [(0, 2)]
    assert [one.offsets for one in batches_in(FileSlice(part.file, 0, size))] == whole


def test_a_header_that_lies_across_two_windows_is_read() -> None:
    value = bytes(WINDOW_BYTES - len(batch(0, 1, b"")) - 20)
    first = batch(0, 1, value)
    assert WINDOW_BYTES - 61 < len(first) < WINDOW_BYTES
    part = part_of(first, SECOND)
    assert [one.offsets for one in batches_in(part)] == [(0, 0), (3, 4)]
    assert len(sliced(part, batches_in(part), [Acquired(3, 4, 1)])) == len(SECOND)
