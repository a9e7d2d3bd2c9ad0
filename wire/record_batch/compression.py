"""Compression and decompression of record batches, with bounded memory for decompression.

Compressed bytes are untrusted: a few kilobytes may expand to gigabytes. Every decompressor yields pieces, and the
caller stops at a limit; `decompression` has the decompressors, `compression_headers` the check of a Produce request.
lz4 is the LZ4 frame format, snappy is xerial's block framing around raw snappy (raw snappy is read too, as librdkafka
may send it). Source: ``Compression*.java``, ``SnappyCompression.java`` (apache/kafka 4.3.1), xerial snappy-java's
``SnappyOutputStream`` header; zstd is KIP-110, levels are KIP-390.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES, SNAPPY_MAX_RATIO
from ottla.wire.record_batch.compression_headers import XERIAL_MAGIC, snappy_uncompressed_length
from ottla.wire.record_batch.decompression import (
    FREE_BYTES,
    decompress_gzip,
    decompress_lz4,
    decompress_snappy,
    decompress_zstd,
    iterate_snappy_blocks,
)

_XERIAL_BLOCK_BYTES = 32 * 1024
MAX_COMPRESSION_RATIOS = (1, 1032, SNAPPY_MAX_RATIO, 255, 32 * 1024)
"""Maximum ratio of decompressed to compressed bytes, by codec number. zstd: a block of 128 KiB takes 4 bytes."""
_PIECE_BYTES = 1 << 20


class DecompressedSizeExceeded(WireError):
    """Decompressed size exceeds the limit; of snappy data perhaps the claimed size, before anything is decompressed."""

    def __init__(self, codec: CompressionType, limit: int) -> None:
        super().__init__(f"{codec.name.lower()} data unpacks to more than {limit} bytes")
        self._of = codec, limit

    def __reduce__(self) -> tuple[type[DecompressedSizeExceeded], tuple[CompressionType, int]]:
        return type(self), self._of  # picklable: may be raised in a child process


class CompressionType(IntEnum):
    """Compression codec: bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def _copy_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(view), size_bytes):
        yield bytes(view[at : at + size_bytes])


_DECOMPRESSORS: dict[CompressionType, Callable[[Buffer, int], Iterator[bytes]]] = {
    CompressionType.NONE: _copy_pieces,
    CompressionType.GZIP: decompress_gzip,
    CompressionType.SNAPPY: decompress_snappy,
    CompressionType.LZ4: decompress_lz4,
    CompressionType.ZSTD: decompress_zstd,
}


class StreamCompressor(NamedTuple):
    """Streaming compressor: call ``add`` for each piece, then ``finish``; their joined results are the output."""

    add: Callable[[bytes], bytes]
    finish: Callable[[], bytes]


class _XerialCompressor:
    """Streaming compressor of xerial snappy: blocks of 32 KiB, each preceded by its length."""

    def __init__(self) -> None:
        self._waiting = b""
        self._head = XERIAL_MAGIC + struct.pack(">ii", 1, 1)

    def add(self, piece: bytes, *, least: int = _XERIAL_BLOCK_BYTES) -> bytes:
        # lazy: 2.8 ms, 147 kB
        import snappy

        out, self._head = [self._head], b""
        data, at = self._waiting + piece, 0
        while len(data) - at >= least:
            block = snappy.compress(data[at : at + _XERIAL_BLOCK_BYTES])
            out += [struct.pack(">i", len(block)), block]
            at += _XERIAL_BLOCK_BYTES
        self._waiting = data[at:]
        return b"".join(out)

    def finish(self) -> bytes:
        return self.add(b"", least=1)


def create_compressor(codec: CompressionType, level: int | None = None) -> StreamCompressor:
    """Return a new compressor of a codec; ``level``: ``compression.{gzip,lz4,zstd}.level``, None for the default."""
    if codec is CompressionType.GZIP:
        gzip = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return StreamCompressor(gzip.compress, gzip.flush)
    if codec is CompressionType.SNAPPY:
        xerial = _XerialCompressor()
        return StreamCompressor(xerial.add, xerial.finish)
    if codec is CompressionType.LZ4:
        # lazy: 2.0 ms, 76 kB
        import lz4.frame

        frame = lz4.frame.LZ4FrameCompressor(
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
        )
        head = [frame.begin()]

        def begun(data: bytes) -> bytes:
            return (head.pop() if head else b"") + data

        return StreamCompressor(lambda piece: begun(frame.compress(piece)), lambda: begun(frame.flush()))
    if codec is CompressionType.ZSTD:
        # lazy: 1.7 ms, 74 kB
        import zstandard

        zstd = zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compressobj()
        return StreamCompressor(zstd.compress, zstd.flush)
    return StreamCompressor(bytes, bytes)


_COMPRESSION_TYPES = tuple(CompressionType)


def compression_type_of(attributes: int) -> CompressionType:
    """Return the compression codec in a batch's attributes.

    Raises:
        WireError: the codec number is unknown.
    """
    number = attributes & 0x07
    if number < len(_COMPRESSION_TYPES):
        return _COMPRESSION_TYPES[number]
    raise WireError(f"unknown codec {number}")


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Return ``data`` compressed in one call, which compresses better than a stream; ``level`` None: default."""
    if codec is CompressionType.LZ4:
        # lazy: 2.1 ms, 76 kB
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            bytes(data),
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
        )
        return frame
    if codec is CompressionType.ZSTD:
        # lazy: 1.6 ms, 74 kB
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(
            bytes(data)
        )
    pack = create_compressor(codec, level)
    return pack.add(bytes(data)) + pack.finish()


def iterate_decompressed(codec: CompressionType, data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Yield decompressed pieces of at most ``size_bytes``; the caller decides when to stop.

    A piece may be empty: long data may expand to nothing, and the caller can yield to the event loop in between.

    Raises:
        WireError: the data is not valid for this codec.
    """
    try:
        yield from _DECOMPRESSORS[codec](data, size_bytes)
    except WireError:
        raise
    except Exception as error:  # noqa: BLE001,RUF100 - each library raises its own exceptions, some of them bare
        raise WireError(f"bad {codec.name.lower()} data: {error}") from None


class StreamDecompressor:
    """Iterator over decompressed pieces of ``data``, up to a limit of bytes; uncompressed data has no limit.

    Many may be suspended at once, each with its codec's memory: a window in zstd, a whole block in snappy. So a caller
    that may have to wait for memory does so once ``is_memory_heavy`` is True, before it requests the next piece.
    """

    def __init__(
        self, codec: CompressionType, data: Buffer, size_bytes: int, limit: int = MAX_DECOMPRESSED_BYTES
    ) -> None:
        self._codec = codec
        self._limit = limit
        self._pieces = iterate_decompressed(codec, data, size_bytes)
        self._bytes = 0
        self.is_memory_heavy = False
        """True if the codec holds, or will hold with the next piece, more than `FREE_BYTES`."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next piece.

        Raises:
            WireError: the data is not valid for this codec; DecompressedSizeExceeded: the limit is exceeded.
        """
        piece = next(self._pieces)
        self._bytes += len(piece)
        if self._codec is not CompressionType.NONE:
            if self._bytes > self._limit:
                raise DecompressedSizeExceeded(self._codec, self._limit)
            self.is_memory_heavy = (
                self.is_memory_heavy
                or self._bytes > FREE_BYTES
                or (not piece and self._codec is CompressionType.SNAPPY)
            )
        return piece


def decompress(codec: CompressionType, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Return ``data`` decompressed to at most ``limit`` bytes; for codec NONE ``data`` itself, without a limit.

    Raises:
        WireError: the data is not valid for this codec; DecompressedSizeExceeded: the limit is exceeded.
    """
    if codec is CompressionType.NONE:
        return data
    if codec is CompressionType.SNAPPY:
        _check_snappy_lengths(data, limit)
    out = []
    left = limit
    for piece in iterate_decompressed(codec, data, min(_PIECE_BYTES, limit + 1)):
        left -= len(piece)
        if left < 0:
            raise DecompressedSizeExceeded(codec, limit)
        if piece:
            out.append(piece)
    return out[0] if len(out) == 1 else b"".join(out)


def _check_snappy_lengths(data: Buffer, limit: int) -> None:
    """Check the claimed sizes of all snappy blocks before they are decompressed.

    Raises:
        DecompressedSizeExceeded: their sum is above ``limit``; WireError: a malformed block.
    """
    claimed = sum(snappy_uncompressed_length(block) for block in iterate_snappy_blocks(memoryview(data)))
    if claimed > limit:
        raise DecompressedSizeExceeded(CompressionType.SNAPPY, limit)
