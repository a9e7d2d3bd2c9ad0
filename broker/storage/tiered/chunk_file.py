"""Format of a file of the chunk cache: the chunk, checksums of its blocks, its length, and a checksum of these."""

from __future__ import annotations

from ottla.env.disk import File
from ottla.wire.record_batch.crc import crc32c

BLOCK_BYTES = 64 * 1024
"""Bytes of a chunk that have a checksum of their own; at this size the checksum is computed without the GIL."""
PIECE_BYTES = 16 * BLOCK_BYTES
"""Bytes that the verification of a file reads at a time."""
TRAILER_BYTES = 8 + 4
"""Bytes after the checksums of the blocks."""


def block_checksums(data: bytes) -> bytes:
    """Return the CRC-32C of each block of a chunk, 4 bytes each, concatenated."""
    view = memoryview(data)
    blocks = (view[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))
    return b"".join(crc32c(block).to_bytes(4, "big") for block in blocks)


def encode_trailer(checksums: bytes, data_bytes: int) -> bytes:
    """Return the end of a chunk file: checksums of the blocks, length of the chunk, and a checksum of both."""
    body = checksums + data_bytes.to_bytes(8, "big")
    return body + crc32c(body).to_bytes(4, "big")


def block_count(file_bytes: int) -> int:
    """Return the number of blocks in a file of this length.

    Raises:
        ValueError: no chunk has that length.
    """
    body = file_bytes - TRAILER_BYTES
    count = -(-body // (BLOCK_BYTES + 4))
    if body < 0 or not (count - 1) * BLOCK_BYTES < body - 4 * count <= count * BLOCK_BYTES:
        raise ValueError(f"chunk file of {file_bytes} bytes")
    return count


def decode_trailer(raw: bytes) -> bytes:
    """Return the checksums of the blocks from ``raw``, the end of a chunk file: exactly what `encode_trailer` returned.

    Raises:
        ValueError: ``raw`` is incomplete or damaged, or begins before the trailer.
    """
    if len(raw) < TRAILER_BYTES or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
        raise ValueError("trailer of a chunk file has a wrong checksum")
    return raw[:-TRAILER_BYTES]


def verify_blocks(data: bytes, checksums: bytes, start: int) -> None:
    """Check whole blocks in ``data``, the first of which begins at position ``start`` of the chunk.

    ``checksums`` are those of all blocks of the chunk.

    Raises:
        ValueError: one has a wrong checksum.
    """
    view = memoryview(data)
    for at in range(0, len(data), BLOCK_BYTES):
        entry = (start + at) // BLOCK_BYTES * 4
        if crc32c(view[at : at + BLOCK_BYTES]) != int.from_bytes(checksums[entry : entry + 4], "big"):
            raise ValueError(f"block at {start + at} has a wrong checksum")


def read_chunk(file: File, file_bytes: int) -> bytes:
    """Return the chunk in a file, verified.

    Raises:
        ValueError: the file is incomplete or damaged. OSError: the disk failed.
    """
    checksums = _read_checksums(file, file_bytes)
    return _read_verified(file, checksums, 0, file_bytes - len(checksums) - TRAILER_BYTES)


def verify_chunk(file: File, file_bytes: int) -> None:
    """Check all blocks of a file, in pieces.

    Raises:
        ValueError: the file is incomplete or damaged. OSError: the disk failed.
    """
    checksums = _read_checksums(file, file_bytes)
    data_bytes = file_bytes - len(checksums) - TRAILER_BYTES
    for start in range(0, data_bytes, PIECE_BYTES):
        _read_verified(file, checksums, start, min(start + PIECE_BYTES, data_bytes))


def _read_checksums(file: File, file_bytes: int) -> bytes:
    trailer_bytes = 4 * block_count(file_bytes) + TRAILER_BYTES
    return decode_trailer(file.pread(trailer_bytes, file_bytes - trailer_bytes))


def _read_verified(file: File, checksums: bytes, start: int, end: int) -> bytes:
    data = file.pread(end - start, start)
    if len(data) < end - start:
        raise ValueError(f"chunk is truncated: {start + len(data)} bytes")
    verify_blocks(data, checksums, start)
    return data
