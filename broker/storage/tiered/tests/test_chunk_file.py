"""Files of the chunk cache: verification in pieces, and files that are no chunk."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.storage.tiered import chunk_file
from ottla.broker.storage.tiered.chunk_file import (
    BLOCK_BYTES,
    block_checksums,
    block_count,
    encode_trailer,
    read_chunk,
    verify_chunk,
)
from ottla.broker.storage.tiered.tests.segment_files import random_records

SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 5 * BLOCK_BYTES + 7]


class ChunkFile:
    """File in memory, with the ranges that were read."""

    def __init__(self, data: bytes) -> None:
        self.raw = data
        self.reads: list[tuple[int, int]] = []

    def pread(self, size: int, offset: int) -> bytes:
        self.reads.append((offset, size))
        return self.raw[offset : offset + size]


def encoded(data: bytes) -> bytes:
    return data + encode_trailer(block_checksums(data), len(data))


@pytest.mark.parametrize("size", SIZES)
def test_chunk_in_a_file_is_read_back(size: int) -> None:
    data = random_records(size)
    file: Any = ChunkFile(encoded(data))
    assert block_count(len(file.raw)) == -(-size // BLOCK_BYTES)
    assert read_chunk(file, len(file.raw)) == data


@pytest.mark.parametrize("size", SIZES)
def test_verification_reads_the_chunk_in_pieces(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(chunk_file, "PIECE_BYTES", 2 * BLOCK_BYTES)
    data = random_records(size)
    file: Any = ChunkFile(encoded(data))
    verify_chunk(file, len(file.raw))
    step = 2 * BLOCK_BYTES
    assert file.reads[1:] == [(start, min(step, size - start)) for start in range(0, size, step)]


@pytest.mark.parametrize("at", [0, BLOCK_BYTES, 3 * BLOCK_BYTES + 5, 5 * BLOCK_BYTES + 6, -1])
def test_verification_of_a_damaged_byte_fails(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(chunk_file, "PIECE_BYTES", 2 * BLOCK_BYTES)
    raw = bytearray(encoded(random_records(5 * BLOCK_BYTES + 7)))
    raw[at] ^= 1
    file: Any = ChunkFile(bytes(raw))
    for work in (verify_chunk, read_chunk):
        with pytest.raises(ValueError, match="wrong checksum"):
            work(file, len(raw))


@pytest.mark.parametrize("file_bytes", [0, 11, 13, 16, BLOCK_BYTES + 17, BLOCK_BYTES + 20])
def test_block_count_of_a_length_that_no_chunk_has_fails(file_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"chunk file of {file_bytes} bytes"):
        block_count(file_bytes)
