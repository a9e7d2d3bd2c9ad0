"""The five codecs of record batches, each unpacking in bounded memory.

Compressed bytes come from strangers: a few kilobytes may claim gigabytes. Every unpacker here stops at ``limit``.
lz4 is the LZ4 frame format, snappy is xerial's block framing around raw snappy (raw snappy is read too, as
librdkafka may send it). Source: ``Compression*.java``, ``SnappyCompression.java`` (apache/kafka 4.3.1), xerial
snappy-java's ``SnappyOutputStream`` header.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ottla.wire.errors import WireError
from ottla.wire.primitives import Buffer

DEFAULT_LIMIT_BYTES = 128 * 1024 * 1024
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_BLOCK_BYTES = 32 * 1024


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def _too_big(codec: str, limit: int) -> WireError:
    return WireError(f"{codec} data unpacks to more than {limit} bytes")


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gzip_decompress(data: Buffer, limit: int) -> bytes:
    out = bytearray()
    rest = bytes(data)
    while rest:  # members may follow one another
        unpacker = zlib.decompressobj(31)
        out += unpacker.decompress(rest, limit + 1 - len(out))
        if len(out) > limit:
            raise _too_big("gzip", limit)
        if not unpacker.eof:
            raise WireError("gzip data ends early")
        rest = unpacker.unused_data
    return bytes(out)


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    import snappy

    out = [_XERIAL, struct.pack(">ii", 1, 1)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += [struct.pack(">i", len(block)), block]
    return b"".join(out)


def _snappy_raw_size(data: Buffer) -> int:
    """What a raw snappy block says it unpacks to."""
    value = 0
    for index, shift in enumerate((0, 7, 14, 21, 28)):
        if index >= len(data):
            break
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value
    raise WireError("snappy block without a length")


def _snappy_decompress(data: Buffer, limit: int) -> bytes:
    import snappy

    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL:
        blocks = [view]
    else:
        blocks, pos = [], 16
        while pos < len(view):
            if pos + 4 > len(view):
                raise WireError("snappy block length cut off")
            (size,) = struct.unpack_from(">i", view, pos)
            pos += 4
            if size < 0 or size > len(view) - pos:
                raise WireError(f"snappy block of {size} bytes")
            blocks.append(view[pos : pos + size])
            pos += size
    out = []
    left = limit
    for block in blocks:
        left -= _snappy_raw_size(block)
        if left < 0:
            raise _too_big("snappy", limit)
        out.append(snappy.uncompress(bytes(block)))
    return b"".join(out)


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(
        bytes(data), compression_level=0 if level is None else level, block_size=lz4.frame.BLOCKSIZE_MAX64KB
    )
    return packed


def _lz4_decompress(data: Buffer, limit: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    out: bytes = unpacker.decompress(bytes(data), max_length=limit + 1)
    if len(out) > limit:
        raise _too_big("lz4", limit)
    if not unpacker.eof:
        raise WireError("lz4 frame ends early")
    return out


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(bytes(data))


def _zstd_decompress(data: Buffer, limit: int) -> bytes:
    import zstandard

    # One-shot decompress() believes the frame's own content size; the streaming reader keeps to what we ask for.
    out = bytearray()
    raw = bytes(data)
    with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw, read_across_frames=True) as reader:
        while chunk := reader.read(min(1 << 20, limit + 1 - len(out))):
            out += chunk
            if len(out) > limit:
                raise _too_big("zstd", limit)
    return bytes(out)


_PACK: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: lambda data, level: bytes(data),
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_UNPACK: dict[Codec, Callable[[Buffer, int], Any]] = {
    Codec.NONE: lambda data, limit: data,
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}


def codec_of(attributes: int) -> Codec:
    """The codec a batch's attributes name.

    Raises:
        WireError: bits 0 to 2 name none.
    """
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise WireError(f"unknown codec {attributes & 0x07}") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Pack data; ``level`` as the topic settings ``compression.{gzip,lz4,zstd}.level`` give it."""
    return _PACK[codec](data, level)


def decompress(codec: Codec, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """Unpack data to at most ``limit`` bytes.

    Raises:
        WireError: not data of this codec, or more than ``limit`` bytes come out.
    """
    try:
        out: Buffer = _UNPACK[codec](data, limit)
    except WireError:
        raise
    except Exception as error:  # noqa: BLE001,RUF100 - each library has exceptions of its own, some of them bare
        raise WireError(f"bad {codec.name.lower()} data: {error}") from None
    return out
