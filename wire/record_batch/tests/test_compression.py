"""Compression codecs: accepted encodings, memory limits, and recognition of compressed data.

Sources: `SnappyInputStream` and `GZIPInputStream` as Kafka uses them, RFC 1952 (gzip members), RFC 8878 (zstd frames),
the LZ4 frame format, snappy's format description (a block begins with its size as a varint).
"""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from xxhash import xxh32_intdigest

from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.record_batch.compression import (
    CompressionType,
    DecompressedSizeExceeded,
    compress,
    compression_type_of,
    create_compressor,
    decompress,
    iterate_decompressed,
)
from ottla.wire.record_batch.compression_headers import check_compressed_prefix, snappy_uncompressed_length
from ottla.wire.record_batch.decompression import iterate_snappy_blocks

TEXT = b"a line that comes again and again\n" * 5000
PACKED = [codec for codec in CompressionType if codec is not CompressionType.NONE]
XERIAL = bytes.fromhex("82534e41505059000000000100000001")


def block(raw: bytes) -> bytes:
    """Return a block after its length, as xerial frames it."""
    return struct.pack(">i", len(raw)) + raw


@pytest.mark.parametrize(
    ("attributes", "codec"),
    [
        (0, CompressionType.NONE),
        (1, CompressionType.GZIP),
        (2, CompressionType.SNAPPY),
        (3, CompressionType.LZ4),
        (4, CompressionType.ZSTD),
    ],
)
def test_compression_type_of_uses_lowest_three_bits(attributes: int, codec: CompressionType) -> None:
    assert compression_type_of(attributes) is codec
    assert compression_type_of(attributes | 0x78) is codec
    assert compression_type_of(attributes | -8) is codec


@pytest.mark.parametrize("attributes", [5, 6, 7, 0x0F])
def test_compression_type_of_unknown_codec_raises_wire_error(attributes: int) -> None:
    with pytest.raises(WireError, match=f"unknown codec {attributes & 7}"):
        compression_type_of(attributes)


# ---------------------------------------------------------------- data of other implementations


def lz4_frame(data: bytes, *, linked: bool = False, content_size: int | None = None) -> bytes:
    """Return a frame with a content checksum, and with a content size if given."""
    raw = lz4.frame.compress(data, content_checksum=True, block_linked=linked, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    if content_size is None:
        return bytes(raw)
    descriptor = raw[4:6] + struct.pack("<Q", content_size)
    return bytes(raw[:4] + descriptor + bytes((xxh32_intdigest(descriptor) >> 8 & 0xFF,)) + raw[15:])


def other_programs() -> dict[str, tuple[CompressionType, bytes]]:
    xerial = XERIAL + b"".join(block(snappy.compress(TEXT[at : at + 5000])) for at in range(0, len(TEXT), 5000))
    zstd_frames = zstandard.compress(TEXT[:100]) + zstandard.compress(TEXT[100:])
    return {
        "gzip with a name in its head": (CompressionType.GZIP, gzip.compress(TEXT)),
        "two gzip members": (CompressionType.GZIP, gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:])),
        "gzip with something behind it": (CompressionType.GZIP, gzip.compress(TEXT) + b"\x1f\x00more"),
        "snappy without frames, as librdkafka sends it": (CompressionType.SNAPPY, snappy.compress(TEXT)),
        "snappy in blocks of another size": (CompressionType.SNAPPY, xerial),
        "snappy with less than a length behind it": (CompressionType.SNAPPY, xerial + b"\0\0\0"),
        "snappy with blocks that hold nothing": (
            CompressionType.SNAPPY,
            XERIAL + block(b"\0") + xerial[16:] + block(b"\0"),
        ),
        "lz4 in large blocks": (CompressionType.LZ4, lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        "lz4 with checksums": (
            CompressionType.LZ4,
            lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, block_linked=False),
        ),
        "lz4 whose content size and checksum are wrong, which Kafka does not compare": (
            CompressionType.LZ4,
            lz4_frame(TEXT, content_size=1)[:-4] + b"sum!",
        ),
        "lz4 with another frame behind it": (CompressionType.LZ4, lz4_frame(TEXT) + lz4_frame(TEXT)),
        "lz4 with an empty block and something behind it": (
            CompressionType.LZ4,
            lz4_frame(TEXT)[:-8] + b"\1\0\0\0\0what",
        ),
        "two snappy streams": (
            CompressionType.SNAPPY,
            XERIAL + block(snappy.compress(TEXT[:7])) + XERIAL + block(snappy.compress(TEXT[7:])),
        ),
        "gzip with reserved flags": (CompressionType.GZIP, gzip.compress(TEXT)[:3] + b"\xe0" + gzip.compress(TEXT)[4:]),
        "gzip with a bad member's header behind it": (
            CompressionType.GZIP,
            gzip.compress(TEXT) + b"\x1f\x8b\x07" + bytes(30),
        ),
        "zstd with the beginning of another frame behind it": (CompressionType.ZSTD, zstd_frames + zstd_frames[:12]),
        "zstd without its size": (
            CompressionType.ZSTD,
            zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
        ),
        "two zstd frames": (CompressionType.ZSTD, zstd_frames),
        "a zstd frame that is to be skipped": (CompressionType.ZSTD, b"\x50\x2a\x4d\x18\x02\0\0\0xx" + zstd_frames),
    }


@pytest.mark.parametrize("name", other_programs())
def test_decompress_data_of_other_implementations_returns_content(name: str) -> None:
    codec, data = other_programs()[name]
    assert check_compressed_prefix(codec, data) is ErrorCode.NONE
    for kind in (bytes, bytearray, memoryview):
        assert bytes(decompress(codec, kind(data))) == TEXT


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("size", [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 100_000])
def test_compressor_in_pieces_or_at_once_survives_round_trip(codec: CompressionType, size: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    pack = create_compressor(codec)
    packed = b"".join(pack.add(data[at : at + 7000]) for at in range(0, size, 7000)) + pack.finish()
    assert bytes(decompress(codec, packed)) == data
    assert bytes(decompress(codec, compress(codec, data))) == data
    assert b"".join(iterate_decompressed(codec, packed, 1000)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_check_compressed_prefix_accepts_only_data_of_its_codec(codec: CompressionType) -> None:
    data = compress(codec, TEXT)
    assert check_compressed_prefix(codec, data) is ErrorCode.NONE
    assert check_compressed_prefix(codec, memoryview(bytearray(data))) is ErrorCode.NONE
    for other in PACKED:
        if other is not codec:
            assert check_compressed_prefix(other, data) is not ErrorCode.NONE
    assert check_compressed_prefix(CompressionType.NONE, data) is ErrorCode.NONE


@pytest.mark.parametrize("codec", PACKED)
def test_check_compressed_prefix_of_unknown_data_returns_error(codec: CompressionType) -> None:
    for data in (b"", b"\x1f", b"\x28\xb5\x2f", b"\x04\x22\x4d", b"\x80" * 100, b"\x05\x01", b"some text"):
        assert check_compressed_prefix(codec, data) is not ErrorCode.NONE


def test_check_compressed_prefix_snappy_requires_size_and_literal() -> None:
    for size in (1, 127, 128, 20_000, 3_000_000):
        assert check_compressed_prefix(CompressionType.SNAPPY, snappy.compress(bytes(size))) is ErrorCode.NONE
        assert (
            check_compressed_prefix(CompressionType.SNAPPY, XERIAL + block(snappy.compress(bytes(size))))
            is ErrorCode.NONE
        )
    for kind in (1, 2, 3):  # A copy without preceding literal bytes is invalid.
        assert check_compressed_prefix(CompressionType.SNAPPY, bytes([40, kind]) + bytes(40)) is not ErrorCode.NONE
        assert (
            check_compressed_prefix(CompressionType.SNAPPY, XERIAL + block(bytes([40, kind]) + bytes(40)))
            is not ErrorCode.NONE
        )
    assert check_compressed_prefix(CompressionType.SNAPPY, b"\x80\x80\x80\x80\x80\x00\x00") is not ErrorCode.NONE, (
        "size has at most five bytes"
    )


def test_check_compressed_prefix_snappy_reads_less_than_50_bytes() -> None:
    class Watched(bytes):
        read = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            Watched.read += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
            return super().__getitem__(key)

    assert check_compressed_prefix(CompressionType.SNAPPY, Watched(b"\x80" * 1_000_000)) is not ErrorCode.NONE
    assert Watched.read < 50


# ---------------------------------------------------------------- malformed data


def broken() -> dict[str, tuple[CompressionType, bytes]]:
    return {
        "snappy head cut off": (CompressionType.SNAPPY, XERIAL[:12]),
        "snappy block of negative size": (CompressionType.SNAPPY, XERIAL + struct.pack(">i", -1) + b"x" * 20),
        "snappy block longer than the data": (CompressionType.SNAPPY, XERIAL + struct.pack(">i", 21) + b"x" * 20),
        "snappy block whose last byte is missing": (
            CompressionType.SNAPPY,
            (XERIAL + block(snappy.compress(b"abc") + b"!"))[:-1],
        ),
        "snappy block without a size": (CompressionType.SNAPPY, XERIAL + block(b"")),
        "snappy without anything": (CompressionType.SNAPPY, b""),
        "snappy whose size has six bytes": (CompressionType.SNAPPY, b"\xff" * 5 + b"\x01" + b"x" * 20),
        "snappy whose size is cut off": (CompressionType.SNAPPY, b"\xff\xff"),
        "snappy that claims more than can be": (CompressionType.SNAPPY, b"\xff\xff\xff\xff\x07" + b"x" * 20),
        "gzip cut off": (CompressionType.GZIP, gzip.compress(TEXT)[:-9]),
        "gzip of nothing": (CompressionType.GZIP, b""),
        "gzip with a wrong checksum": (CompressionType.GZIP, gzip.compress(TEXT)[:-8] + bytes(8)),
        "zlib is not gzip": (CompressionType.GZIP, zlib.compress(TEXT)),
        "a second gzip member cut off": (CompressionType.GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:20]),
        "lz4 cut off": (CompressionType.LZ4, lz4.frame.compress(TEXT)[:-4]),
        "lz4 of nothing": (CompressionType.LZ4, b""),
        "lz4 with linked blocks": (CompressionType.LZ4, lz4_frame(TEXT, linked=True)),
        "lz4 with a wrong header checksum": (CompressionType.LZ4, lz4_frame(TEXT)[:14] + b"!" + lz4_frame(TEXT)[15:]),
        "lz4 with a dictionary": (
            CompressionType.LZ4,
            lz4_frame(TEXT)[:4] + bytes((lz4_frame(TEXT)[4] | 1,)) + lz4_frame(TEXT)[5:],
        ),
        "lz4 without its checksum": (CompressionType.LZ4, lz4_frame(TEXT)[:-4]),
        "lz4 block with a wrong checksum": (
            CompressionType.LZ4,
            lz4.frame.compress(b"abc", block_checksum=True, block_linked=False)[:-8] + bytes(8),
        ),
        "zstd cut off": (CompressionType.ZSTD, compress(CompressionType.ZSTD, TEXT)[:-1]),
        "zstd without its checksum": (
            CompressionType.ZSTD,
            zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-4],
        ),
        "zstd with something behind it": (CompressionType.ZSTD, compress(CompressionType.ZSTD, TEXT) + b"more"),
        "zstd that needs a dictionary": (CompressionType.ZSTD, b"\x28\xb5\x2f\xfd\x01\x88\x07\x09\x00\x00x"),
        "a thousand snappy headers": (CompressionType.SNAPPY, XERIAL * 1002 + block(snappy.compress(TEXT))),
        "snappy header of version 0": (
            CompressionType.SNAPPY,
            XERIAL + XERIAL[:8] + bytes(8) + block(snappy.compress(TEXT)),
        ),
        "gzip header with a wrong checksum": (
            CompressionType.GZIP,
            b"\x1f\x8b\x08\x02" + bytes(8) + gzip.compress(TEXT)[10:],
        ),
        "gzip with a wrong size": (CompressionType.GZIP, gzip.compress(TEXT)[:-1] + b"!"),
        "zstd of something else": (CompressionType.ZSTD, b"something else"),
        "zstd with a window above 128 MiB": (CompressionType.ZSTD, b"\x28\xb5\x2f\xfd\x00\x89" + b"\x09\x00\x00x"),
    }


@pytest.mark.parametrize("name", broken())
def test_decompress_malformed_data_raises_wire_error(name: str) -> None:
    codec, data = broken()[name]
    with pytest.raises(WireError):
        decompress(codec, data)


def test_decompress_zstd_window_of_128_mib_is_accepted() -> None:
    assert bytes(decompress(CompressionType.ZSTD, b"\x28\xb5\x2f\xfd\x00\x88" + b"\x09\x00\x00" + b"x")) == b"x"


# ---------------------------------------------------------------- levels and frames


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(CompressionType.GZIP, 1, 9), (CompressionType.LZ4, 1, 12), (CompressionType.ZSTD, -5, 19)],
)
def test_compress_level_affects_the_size(codec: CompressionType, low: int, high: int) -> None:
    rng = random.Random(3)
    data = b" ".join(rng.choice((b"alpha", b"beta", b"gamma", b"delta")) for _ in range(20_000))

    def both(level: int | None) -> tuple[int, int]:
        pack = create_compressor(codec, level)
        return len(compress(codec, data, level)), len(pack.add(data) + pack.finish())

    assert both(high)[0] < both(low)[0]
    assert both(high)[1] < both(low)[1]
    # GzipCompression, Lz4Compression, ZstdCompression
    usual = {CompressionType.GZIP: 6, CompressionType.LZ4: 0, CompressionType.ZSTD: 3}
    assert both(None) == both(usual[codec])


def test_compress_snappy_writes_xerial_blocks_of_32_kib() -> None:
    data = random.Random(2).randbytes(70_000)
    raw = compress(CompressionType.SNAPPY, data)
    assert raw[:16] == XERIAL
    sizes = [snappy_uncompressed_length(one) for one in iterate_snappy_blocks(memoryview(raw))]
    assert sizes == [32 * 1024, 32 * 1024, 70_000 - 64 * 1024]


def test_compress_lz4_writes_independent_blocks_of_64_kib() -> None:
    pack = create_compressor(CompressionType.LZ4)
    for raw in (compress(CompressionType.LZ4, TEXT), pack.add(TEXT) + pack.finish()):
        assert lz4.frame.get_frame_info(raw)["block_size"] == 64 * 1024
        assert not lz4.frame.get_frame_info(raw)["block_linked"], "Java reads independent blocks only"


def test_compressor_none_returns_its_input() -> None:
    pack = create_compressor(CompressionType.NONE)
    assert (pack.add(b"abc"), pack.finish()) == (b"abc", b"")


def test_decompressed_size_exceeded_survives_pickling() -> None:
    """A compaction process returns its errors through a pipe."""
    error = DecompressedSizeExceeded(CompressionType.ZSTD, 5)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (DecompressedSizeExceeded, str(error))
