"""Streaming decompressors of compressed records, in bounded memory.

Each accepts exactly the data that the decompressor of Kafka 4.3.1 for the same codec accepts: a Java consumer stops at
a batch that it cannot decompress, so no such batch may be appended. Each yields pieces of a limited size.

Source: ``Lz4BlockInputStream.java``, ``GzipCompression.java``, ``SnappyCompression.java``, ``ZstdCompression.java``,
``ChunkedBytesStream.java`` (apache/kafka 4.3.1); ``java.util.zip.GZIPInputStream`` (JDK 17); ``SnappyInputStream``
(snappy-java 1.1.10); ``ZstdInputStreamNoFinalizer`` (zstd-jni 1.5.6).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import Any

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.limits import SNAPPY_MAX_RATIO
from ottla.wire.record_batch.compression_headers import (
    LZ4_MAGIC,
    XERIAL_HEAD,
    XERIAL_HEADER_BYTES,
    XERIAL_MAGIC,
    ZSTD_INPUT_BYTES,
    ZSTD_MAX_WINDOW_BYTES,
    Lz4FrameDescriptor,
    ZstdFrameHeader,
    compute_lz4_header_checksum,
    gzip_header_end,
    parse_lz4_descriptor,
    parse_zstd_frame_header,
    snappy_uncompressed_length,
    xerial_header_follows,
)

FREE_BYTES = 1 << 20
"""Decompressed bytes up to which a codec's memory is not limited; beyond it may hold up to 128 MiB, its window."""
_FEED_BYTES = 64 * 1024
"""Compressed bytes passed to a library at once: it copies unused input."""
_FIRST_FEED_BYTES = 1024
"""Bytes of a gzip member passed at first, doubled each time, so that tiny members copy little unused input."""
_GZIP_INPUT_BYTES = 8 * 1024
"""Input buffer of ``GzipCompression``, whose contents determine whether bytes after a member are read."""
_ZSTD_RUN_BYTES = 128 * 1024
"""Maximum decompressed size of zstd blocks that are decompressed together: that of one block."""
_RUN_BLOCKS = 1000
"""Maximum number of blocks of a frame that are decompressed together: blocks may be as small as 3 bytes."""
_MAX_XERIAL_HEADERS = 1000
"""Maximum number of consecutive xerial headers: Java reads them recursively and fails at some thousands."""


_Frame = Generator[bytes, None, int]


def _split(out: bytes, size_bytes: int) -> Iterator[bytes]:
    yield out[:size_bytes]
    for at in range(size_bytes, len(out), size_bytes):
        yield out[at : at + size_bytes]


# ---------------------------------------------------------------- gzip


class _GzipMember:
    """Decompressor of the deflate data of one gzip member, which verifies size and checksum in its trailer."""

    def __init__(self, view: memoryview, position: int) -> None:
        self._view = view
        self.end = position
        """Position of the trailer once all pieces were read; of the deflate data before."""

    def pieces(self, size_bytes: int) -> Iterator[bytes]:
        view, at = self._view, self.end
        inflater, feed, crc, written = zlib.decompressobj(-zlib.MAX_WBITS), _FIRST_FEED_BYTES, 0, 0
        while not inflater.eof:
            more: Buffer = inflater.unconsumed_tail
            if not more:
                more = view[at : at + feed]
                at += len(more)
                feed = min(2 * feed, _FEED_BYTES)
            out = inflater.decompress(more, size_bytes)
            if out:
                crc = zlib.crc32(out, crc)
                written += len(out)
                yield out
            elif not more:
                raise WireError("gzip data ends early")
        self.end = at = at - len(inflater.unused_data)
        if len(view) - at < 8:
            raise WireError("gzip data ends early")
        if struct.unpack_from("<II", view, at) != (crc, written & 0xFFFFFFFF):
            raise WireError("gzip data with a wrong checksum or size")


def decompress_gzip(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Yield the content of consecutive gzip members in pieces of at most ``size_bytes``; some pieces are empty.

    Bytes after a member that are no gzip header end the data without an error, as in Java.

    Raises:
        WireError, zlib.error: the data is invalid or incomplete.
    """
    view = memoryview(data)
    at = buffered = gzip_header_end(view, 0)
    while True:
        member = _GzipMember(view, at)
        yield from member.pieces(size_bytes)
        if member.end > buffered:
            fills = -(-(member.end - buffered) // _GZIP_INPUT_BYTES)
            buffered = min(buffered + fills * _GZIP_INPUT_BYTES, len(view))
        at = member.end + 8
        # GZIPInputStream.readTrailer: at least 18 bytes of another member, or bytes that were not buffered yet
        if max(buffered, at) == len(view) and buffered - member.end <= 26:
            return
        try:
            at = gzip_header_end(view, at)
        except WireError:
            return
        buffered = max(buffered, at)
        yield b""  # there may be 50,000 empty members


# ---------------------------------------------------------------- snappy


def iterate_snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks of consecutive xerial streams; raw snappy data is one block.

    Raises:
        WireError: a header or block is malformed or incomplete.
    """
    if len(view) < XERIAL_HEADER_BYTES or view[:8] != XERIAL_MAGIC:
        yield view
        return
    at, headers = XERIAL_HEADER_BYTES, 0
    while at + 4 <= len(view):  # fewer bytes than a length are ignored, as in Java
        (size,) = struct.unpack_from(">i", view, at)
        if size == XERIAL_HEAD:
            if not xerial_header_follows(view, at):
                return
            headers += 1
            if headers > _MAX_XERIAL_HEADERS:
                raise WireError(f"more than {_MAX_XERIAL_HEADERS} snappy headers without a block")
            at += XERIAL_HEADER_BYTES
            continue
        headers, at = 0, at + 4
        if size < 0 or size > len(view) - at:
            raise WireError(f"snappy block of {size} bytes")
        yield view[at : at + size]
        at += size


def decompress_snappy(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Yield the content of snappy data in pieces of at most ``size_bytes``.

    An empty piece precedes a block of more than `FREE_BYTES`, which is then decompressed as a whole.

    Raises:
        WireError, or an exception of the library: the data is invalid, or claims a size that it cannot have.
    """
    # lazy: 2.8 ms, 147 kB
    import snappy

    for block in iterate_snappy_blocks(memoryview(data)):
        claimed = snappy_uncompressed_length(block)
        if claimed > SNAPPY_MAX_RATIO * len(block):
            raise WireError(f"snappy block of {len(block)} bytes that claims {claimed}")
        if claimed > FREE_BYTES:
            yield b""  # the block is in memory as a whole from now on: see `StreamDecompressor`
        yield from _split(snappy.uncompress(bytes(block)), size_bytes)  # an empty block is a piece too


# ---------------------------------------------------------------- lz4


def _lz4_runs(view: memoryview, descriptor: Lz4FrameDescriptor) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of groups of complete lz4 blocks that are decompressed together.

    Raises:
        WireError: the frame is incomplete, or a block is too large.
    """
    at = start = descriptor.header_bytes
    blocks = 0
    checksum_bytes = 4 if descriptor.block_checksum else 0
    while True:
        if len(view) - at < 4:
            raise WireError("lz4 frame ends early")
        (word,) = struct.unpack_from("<I", view, at)
        size = word & 0x7FFFFFFF
        if size == 0:  # Kafka treats an uncompressed block of 0 bytes as the end mark too
            yield start, at
            if descriptor.content_checksum and len(view) - at < 8:
                raise WireError("lz4 frame ends early")
            return
        if size > descriptor.max_block_bytes:
            raise WireError(f"lz4 block of {size} bytes (maximum {descriptor.max_block_bytes})")
        at += 4 + size + checksum_bytes
        if at > len(view):
            raise WireError("lz4 frame ends early")
        blocks += 1
        empty = word == 1 and view[at - checksum_bytes - 1] < 16
        if empty or at - start >= _FEED_BYTES or blocks == _RUN_BLOCKS:
            yield start, at
            start, blocks = at, 0
        if empty:
            return  # ChunkedBytesStream treats a read of 0 bytes as the end of the data


def decompress_lz4(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Yield the content of one lz4 frame in pieces of at most ``size_bytes``; bytes after the frame are ignored.

    Content size and content checksum are not verified, as in Kafka: the library gets a frame header without them.

    Raises:
        WireError, or an exception of the library: the data is invalid or incomplete.
    """
    # lazy: 2.2 ms, 76 kB
    import lz4.frame

    view = memoryview(data)
    descriptor = parse_lz4_descriptor(bytes(view[:15]))
    unpacker = lz4.frame.LZ4FrameDecompressor()
    head = bytes((0x60 | descriptor.block_checksum << 4, view[5]))
    unpacker.decompress(LZ4_MAGIC + head + bytes((compute_lz4_header_checksum(head),)))
    for start, end in _lz4_runs(view, descriptor):
        more = bytes(view[start:end])
        while True:
            out: bytes = unpacker.decompress(more, max_length=size_bytes)
            if out:
                yield out
            elif unpacker.needs_input:
                break
            more = b""


# ---------------------------------------------------------------- zstd


def _zstd_runs(view: memoryview, at: int, frame: ZstdFrameHeader) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of groups of zstd blocks that are decompressed together; the last includes the checksum.

    In an incomplete frame the last group ends within a block, of which the library may decompress a part. ``at``:
    position of the first block.

    Raises:
        WireError: a block has the reserved type.
    """
    start, unpacked, blocks = at, 0, 0
    while len(view) - at >= 3:
        word = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == 3:
            raise WireError("zstd block of a reserved type")
        end = at + 3 + (1 if kind == 1 else size) + (4 if last and frame.checksum else 0)
        if end > len(view):
            at = len(view)
            break
        unpacked += frame.max_block_bytes if kind == 2 else size
        at = end
        if last:
            break
        blocks += 1
        if unpacked >= _ZSTD_RUN_BYTES or blocks == _RUN_BLOCKS:
            yield start, at
            start, unpacked, blocks = at, 0, 0
    if at > start:
        yield start, at


def _decompress_zstd_frame(view: memoryview, at: int, frame: ZstdFrameHeader, unpacker: Any, size_bytes: int) -> _Frame:
    """Yield the content of one zstd frame in pieces of at most ``size_bytes``; return the position after the frame.

    A piece is empty after blocks without output.

    The library decompresses a small frame in one pass; only then it ignores the window size, and verifies the content
    size if the last block is empty.
    """
    body = end = at + frame.header_bytes
    if frame.is_small:
        for start, end in _zstd_runs(view, body, frame):
            if end - at > ZSTD_INPUT_BYTES:
                break
            if start > body:
                yield b""
        if at // ZSTD_INPUT_BYTES == (end - 1) // ZSTD_INPUT_BYTES:
            yield from _split(unpacker.decompress(view[at:end]), size_bytes)
            return end
    if frame.window_bytes > ZSTD_MAX_WINDOW_BYTES:
        raise WireError(f"zstd window of {frame.window_bytes} bytes (maximum {ZSTD_MAX_WINDOW_BYTES})")
    unpacker.decompress(view[at:body])
    end = body
    for start, end in _zstd_runs(view, body, frame):
        yield from _split(unpacker.decompress(view[start:end]), size_bytes)
    return end


def decompress_zstd(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Yield the content of consecutive zstd frames in pieces of at most ``size_bytes``, empty for a skippable frame.

    The library decompresses all of its input at once: it gets groups of blocks with a limited decompressed size.

    Raises:
        WireError, or an exception of the library: the data is invalid or incomplete.
    """
    # lazy: 2.0 ms, 74 kB
    import zstandard

    unpackers = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    view, at = memoryview(data), 0
    while at < len(view):
        # After a frame that ends in the last input buffer, zstd-jni does not detect incomplete data.
        cut_off_is_end = at % ZSTD_INPUT_BYTES and at // ZSTD_INPUT_BYTES == (len(view) - 1) // ZSTD_INPUT_BYTES
        frame = parse_zstd_frame_header(bytes(view[at : at + 18]))
        end, whole = at, False
        if frame is not None and frame.skipped_bytes is not None:
            end = at + frame.header_bytes + frame.skipped_bytes
            whole = end <= len(view)
            yield b""
        elif frame is not None:
            unpacker = unpackers.decompressobj()
            end = yield from _decompress_zstd_frame(view, at, frame, unpacker, size_bytes)
            whole = unpacker.eof
        if not whole:
            if cut_off_is_end:
                return
            raise WireError("zstd frame ends early")
        at = end
