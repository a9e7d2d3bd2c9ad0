"""Segment files read by themselves: windows, incomplete and malformed ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.env.disk import File
from ottla.runtime.real_disk import RealDisk
from ottla.tools.segment_file_reader import SegmentFileReader
from ottla.wire.errors import WireError
from ottla.wire.record_batch.records import NewRecord, build_batch

NAME = "00000000000000000000.log"
SMALL = build_batch([NewRecord(None, bytes(1000), 1000)])
LARGE = build_batch([NewRecord(None, bytes(3 << 20), 1000)])


class RecordedReads:
    """File that records the sizes of its reads."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.sizes: list[int] = []

    def pread(self, size_bytes: int, position: int) -> bytes:
        self.sizes.append(size_bytes)
        return self._file.pread(size_bytes, position)

    def close(self) -> None:
        self._file.close()


def opened(directory: Path, raw: bytes, max_bytes: int | None = None) -> SegmentFileReader:
    path = directory / NAME
    path.write_bytes(raw)
    return SegmentFileReader(RealDisk(), str(path), max_bytes)


def positions(segment: SegmentFileReader) -> Iterator[int]:
    return (position for position, _, _ in segment.batches())


def test_batches_are_read_in_windows_or_one_by_one(tmp_path: Path) -> None:
    segment = opened(tmp_path, 3000 * SMALL + LARGE + SMALL)
    reads = RecordedReads(segment.file)
    segment.file = reads  # type: ignore[assignment]
    found = list(positions(segment))
    assert found == [*(n * len(SMALL) for n in range(3001)), 3000 * len(SMALL) + len(LARGE)]
    assert max(reads.sizes) == len(LARGE)
    assert sorted(reads.sizes)[-2] <= 1 << 20


@pytest.mark.parametrize("cut", [1, 50, len(SMALL) - 17, len(SMALL) - 16, len(SMALL) - 1])
def test_batches_stop_before_an_incomplete_batch(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path, (3 * SMALL)[:-cut]) as segment:
        assert list(positions(segment)) == [0, len(SMALL)]
    with opened(tmp_path, 3 * SMALL, 3 * len(SMALL) - cut) as segment:
        assert list(positions(segment)) == [0, len(SMALL)]


def test_malformed_batch_raises_wire_error_with_file_and_position(tmp_path: Path) -> None:
    found = []
    message = f"{NAME}: batch of 12 bytes at {len(SMALL)}$"
    with opened(tmp_path, SMALL + bytes(100)) as segment, pytest.raises(WireError, match=message):
        found.extend(positions(segment))
    assert found == [0]
