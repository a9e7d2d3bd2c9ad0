"""The check of compressed data by its first bytes; the error codes equal those of Apache Kafka 4.3.1."""

from __future__ import annotations

import lz4.frame
import pytest
from xxhash import xxh32_intdigest

from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.compression_headers import LZ4_MAGIC, check_compressed_prefix, parse_lz4_descriptor

VALID, INVALID, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
HELLO_SNAPPY = b"\x05\x10hello"
XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
GZIP_HELLO = compress(CompressionType.GZIP, b"hello")
LZ4_HELLO = compress(CompressionType.LZ4, b"hello")
ZSTD_HELLO = compress(CompressionType.ZSTD, b"hello")
ZSTD_HEAD = b"\x28\xb5\x2f\xfd"
RAW_BLOCK = b"\x29\x00\x00hello"
BEGINNINGS: list[tuple[CompressionType, bytes, ErrorCode]] = [
    (CompressionType.GZIP, GZIP_HELLO, VALID),
    (CompressionType.GZIP, b"\x1f\x8c" + GZIP_HELLO[2:], UNKNOWN),
    (CompressionType.GZIP, b"\x1f\x8b\x07" + GZIP_HELLO[3:], UNKNOWN),
    (CompressionType.GZIP, GZIP_HELLO[:10] + b"\x07" + GZIP_HELLO[11:], UNKNOWN),
    (CompressionType.GZIP, GZIP_HELLO[:3] + b"\xe0" + GZIP_HELLO[4:], VALID),
    (CompressionType.GZIP, b"\x1f", UNKNOWN),
    (CompressionType.LZ4, LZ4_HELLO, VALID),
    (CompressionType.LZ4, LZ4_HELLO[:3] + b"\x19" + LZ4_HELLO[4:], UNKNOWN),
    (CompressionType.LZ4, LZ4_HELLO[:5], UNKNOWN),
    (CompressionType.LZ4, lz4.frame.compress(bytes(70_000), block_size=4, block_linked=True), UNKNOWN),
    (CompressionType.LZ4, lz4.frame.compress(b""), INVALID),
    (CompressionType.ZSTD, ZSTD_HELLO, VALID),
    (CompressionType.ZSTD, ZSTD_HEAD[:3] + b"\xfc" + ZSTD_HELLO[4:], UNKNOWN),
    (CompressionType.ZSTD, b"\x53\x2a\x4d\x18\x02\0\0\0xx" + ZSTD_HELLO, VALID),
    (CompressionType.ZSTD, b"\x53\x2a\x4d\x18\x02\0\0\0xx", INVALID),
    (CompressionType.ZSTD, b"\x53\x2a\x4d\x18\x02\0\0\0x", UNKNOWN),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x00\x88" + RAW_BLOCK, VALID),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x00\x89" + RAW_BLOCK, UNKNOWN),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x80\x90\x05\0\0\0" + RAW_BLOCK, VALID),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x08\x88" + RAW_BLOCK, UNKNOWN),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x01\x88\x01" + RAW_BLOCK, UNKNOWN),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x01\x88\x00" + RAW_BLOCK, VALID),
    (CompressionType.ZSTD, ZSTD_HEAD + b"\x00\x88\x2f" + RAW_BLOCK[1:], UNKNOWN),
    (CompressionType.ZSTD, ZSTD_HEAD[:3], UNKNOWN),
    (CompressionType.ZSTD, b"", INVALID),
    (CompressionType.SNAPPY, b"", UNKNOWN),
    (CompressionType.SNAPPY, b"\x05", UNKNOWN),
    (CompressionType.SNAPPY, HELLO_SNAPPY, VALID),
    (CompressionType.SNAPPY, b"\x85\x01\x10hello", VALID),
    (CompressionType.SNAPPY, b"\x05\x11hello", UNKNOWN),
    (CompressionType.SNAPPY, b"\x05\x14hello", UNKNOWN),
    (CompressionType.SNAPPY, XERIAL_HEADER + b"\0\0\0\x07" + HELLO_SNAPPY, VALID),
    (CompressionType.SNAPPY, XERIAL_HEADER + b"\0\0\0\x07\x05\x12hello", UNKNOWN),
    (CompressionType.SNAPPY, XERIAL_HEADER + b"\0\0\0\x08" + HELLO_SNAPPY, UNKNOWN),
    (CompressionType.SNAPPY, XERIAL_HEADER * 2 + b"\0\0\0\x01\0\0\0\0\x07" + HELLO_SNAPPY, VALID),
    (CompressionType.SNAPPY, XERIAL_HEADER + XERIAL_HEADER[:8] + bytes(8) + b"\0\0\0\x07" + HELLO_SNAPPY, UNKNOWN),
    (CompressionType.SNAPPY, XERIAL_HEADER, INVALID),
    (CompressionType.NONE, b"anything", VALID),
]


@pytest.mark.parametrize(("codec", "data", "code"), BEGINNINGS)
def test_check_compressed_prefix_header_returns_kafkas_code(
    codec: CompressionType, data: bytes, code: ErrorCode
) -> None:
    assert check_compressed_prefix(codec, data) is code
    assert check_compressed_prefix(codec, memoryview(data)) is code


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x70, 0x74])
@pytest.mark.parametrize("block_size", [0x40, 0x50, 0x60, 0x70])
def test_parse_lz4_descriptor_wrong_checksum_raises_wire_error(flags: int, block_size: int) -> None:
    descriptor = bytes((flags, block_size))
    right = xxh32_intdigest(descriptor) >> 8 & 0xFF
    found = parse_lz4_descriptor(LZ4_MAGIC + descriptor + bytes((right, *range(8))))
    assert found == (7, 1 << 2 * (block_size >> 4) + 8, flags & 0x10 != 0, flags & 4 != 0)
    for checksum in {*range(256)} - {right}:
        with pytest.raises(WireError, match="wrong checksum"):
            parse_lz4_descriptor(LZ4_MAGIC + descriptor + bytes((checksum, *range(8))))
