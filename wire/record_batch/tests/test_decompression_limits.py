"""Limits of decompression: bounded memory and bounded pieces."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy

from ottla.wire.errors import WireError
from ottla.wire.record_batch.compression import (
    CompressionType,
    compress,
    decompress,
    iterate_decompressed,
)
from ottla.wire.record_batch.tests.test_compression import PACKED, TEXT, XERIAL, block


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("size", [1, 1000, 65_536])
def test_iterate_decompressed_pieces_have_at_most_the_given_size(codec: CompressionType, size: int) -> None:
    data = TEXT[: 200 * size]
    got = list(iterate_decompressed(codec, compress(codec, data), size))
    assert b"".join(got) == data
    assert max(map(len, got)) <= size


@pytest.mark.parametrize("codec", list(CompressionType))
def test_decompress_one_byte_above_the_limit_raises_wire_error(codec: CompressionType) -> None:
    packed = compress(codec, TEXT)
    assert bytes(decompress(codec, packed, len(TEXT))) == TEXT
    if codec is not CompressionType.NONE:
        with pytest.raises(WireError, match=f"{codec.name.lower()} data unpacks to more than {len(TEXT) - 1} bytes"):
            decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_decompress_limit_zero_accepts_only_empty_data(codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(WireError, match="more than 0 bytes"):
        decompress(codec, compress(codec, b"x"), 0)


def test_decompress_snappy_block_above_the_limit_raises_before_allocation() -> None:
    """Memory for the claimed size of a block was allocated: CVE-2023-34455."""
    packed = snappy.compress(bytes(32 << 20))
    tracemalloc.start()
    for data in (packed, XERIAL + block(packed)):
        with pytest.raises(WireError, match="more than"):
            decompress(CompressionType.SNAPPY, data, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_decompress_snappy_claim_above_32_times_its_size_raises_wire_error() -> None:
    """CVE-2023-34455."""

    def claims(times: int) -> bytes:
        return bytes([10 * times & 0x7F | 0x80, 10 * times >> 7]) + bytes(8)

    with pytest.raises(WireError, match="that claims 330"):
        decompress(CompressionType.SNAPPY, claims(33))
    with pytest.raises(WireError, match="bad snappy data"):
        decompress(CompressionType.SNAPPY, claims(32))


EMPTY_MEMBER = gzip.compress(b"")


@pytest.mark.parametrize(
    ("codec", "data"),
    [(CompressionType.GZIP, EMPTY_MEMBER * 1000), (CompressionType.SNAPPY, XERIAL + block(b"\0") * 1000)],
)
def test_iterate_decompressed_empty_blocks_yields_empty_pieces(codec: CompressionType, data: bytes) -> None:
    assert 999 <= len(list(iterate_decompressed(codec, data, 1 << 16))) <= 1000
    assert decompress(codec, data) == b""


def test_iterate_decompressed_ordinary_data_yields_one_piece() -> None:
    for codec in PACKED:
        assert len(list(iterate_decompressed(codec, compress(codec, b"x" * 1000), 1 << 16))) == 1


def test_decompress_many_gzip_members_copies_each_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, real = [], zlib.decompressobj

    class Counting:
        def __init__(self, bits: int) -> None:
            self._real = real(bits)

        def decompress(self, data: bytes, most: int) -> bytes:
            fed.append(len(data))
            return self._real.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    decompress(CompressionType.GZIP, EMPTY_MEMBER * 5000)
    assert max(fed) <= 1024
    fed.clear()
    decompress(CompressionType.GZIP, compress(CompressionType.GZIP, random.Random(1).randbytes(1 << 20)))
    assert max(fed) == 64 * 1024
    assert len(fed) < 40


def test_iterate_decompressed_zstd_large_window_takes_bounded_memory() -> None:
    """A block of 4 bytes decompresses to 128 KiB; the library gets one at a time."""
    raw = b"\x28\xb5\x2f\xfd\x00\x88"
    raw += b"".join(((128 * 1024) << 3 | 2 | (number == 999)).to_bytes(3, "little") + b"x" for number in range(1000))
    tracemalloc.start()
    assert sum(len(piece) for piece in iterate_decompressed(CompressionType.ZSTD, raw, 4096)) == 1000 * 128 * 1024
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


def zstd_of_empty_blocks(count: int, *, small: bool) -> bytes:
    head = b"\x28\xb5\x2f\xfd" + (b"\x80\x88\0\0\0\0" if small else b"\x00\x88")
    return head + bytes(3) * (count - 1) + b"\x01\0\0"


@pytest.mark.parametrize(
    ("codec", "data", "whole"),
    [
        (CompressionType.ZSTD, zstd_of_empty_blocks(40_000, small=True), b""),
        (CompressionType.ZSTD, zstd_of_empty_blocks(100_000, small=True), b""),
        (CompressionType.ZSTD, zstd_of_empty_blocks(100_000, small=False), b""),
        (CompressionType.LZ4, lz4.frame.compress(b"")[:-4] + b"\1\0\0\x80x" * 12_000 + bytes(4), b"x" * 12_000),
    ],
)
def test_iterate_decompressed_tiny_blocks_yields_after_1000_blocks(
    codec: CompressionType, data: bytes, whole: bytes
) -> None:
    blocks = len(data) // (3 if codec is CompressionType.ZSTD else 5)
    got = list(iterate_decompressed(codec, data, 1 << 16))
    assert len(got) >= blocks // 1000 - 1
    assert b"".join(got) == whole
