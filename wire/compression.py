"""The five codecs of record batches, each unpacking in bounded memory.

Compressed bytes come from strangers: a few kilobytes may claim gigabytes. Every unpacker here gives
pieces, and whoever takes them stops at a limit.
lz4 is the LZ4 frame format, snappy is xerial's block framing around raw snappy (raw snappy is read too, as
librdkafka may send it). Source: ``Compression*.java``, ``SnappyCompression.java`` (apache/kafka 4.3.1), xerial
snappy-java's ``SnappyOutputStream`` header; zstd is KIP-110, levels are KIP-390.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.wire.errors import WireError
from ottla.wire.primitives import Buffer

DEFAULT_LIMIT_BYTES = 128 * 1024 * 1024
FREE_BYTES = 1 << 20
"""So much of what others sent is unpacked without asking: beyond it a codec may keep up to 128 MiB, its window."""
_GZIP = b"\x1f\x8b"
_LZ4 = b"\x04\x22\x4d\x18"
_ZSTD = b"\x28\xb5\x2f\xfd"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MOST_TIMES = 32
"""A copy of 64 bytes takes at least two or three: no snappy block unpacks to more than this many times its size."""
MOST_TIMES = (1, 1032, _SNAPPY_MOST_TIMES, 255, 32 * 1024)
"""How many times its size data of a codec unpacks to at most, by codec. Of zstd: a block of 128 KiB takes 4 bytes."""
_FEED_BYTES = 64 * 1024
"""So much is given to a library at once: it copies what it does not use."""
_FIRST_FEED_BYTES = 1024
"""So much of a gzip member at first, then twice as much each time: of many tiny members each copies but little."""
_PIECE_BYTES = 1 << 20


class UnpacksTooLarge(WireError):
    """Data of its codec, as far as was looked, and more of it than may be unpacked."""

    def __init__(self, codec: Codec, limit: int) -> None:
        super().__init__(f"{codec.name.lower()} data unpacks to more than {limit} bytes")
        self._of = codec, limit

    def __reduce__(self) -> tuple[type[UnpacksTooLarge], tuple[Codec, int]]:
        return type(self), self._of  # it may come from another process


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def _gzip_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    view, at = memoryview(data), 0
    while True:
        unpacker, feed = zlib.decompressobj(31), _FIRST_FEED_BYTES
        while not unpacker.eof:
            more: Buffer = unpacker.unconsumed_tail
            if not more:
                more = view[at : at + feed]
                at += len(more)
                feed = min(2 * feed, _FEED_BYTES)
            out = unpacker.decompress(more, size_bytes)
            if out:
                yield out
            elif not more:
                raise WireError("gzip data ends early")
        at -= len(unpacker.unused_data)
        if view[at : at + 2] != _GZIP:  # members may follow one another; anything else is passed over, as in Java
            return
        yield b""  # there may be fifty thousand without a byte in them


def _snappy_raw_size(data: Buffer) -> int:
    """What a raw snappy block says it unpacks to."""
    if len(data) and data[0] < 0x80:
        return data[0]
    value = 0
    for index, shift in enumerate((0, 7, 14, 21, 28)):
        if index >= len(data):
            break
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value
    raise WireError("snappy block without a length")


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if view[:8] != _XERIAL:
        yield view
        return
    at = _XERIAL_HEADER_BYTES
    if len(view) < at:
        raise WireError("snappy header cut off")
    while at + 4 <= len(view):  # fewer bytes than a length are passed over, as in Java
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if size < 0 or size > len(view) - at:
            raise WireError(f"snappy block of {size} bytes")
        yield view[at : at + size]
        at += size


def _snappy_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    import snappy

    for block in _snappy_blocks(memoryview(data)):
        claimed = _snappy_raw_size(block)
        if claimed > _SNAPPY_MOST_TIMES * len(block):
            raise WireError(f"snappy block of {len(block)} bytes that claims {claimed}")
        if claimed > FREE_BYTES:
            yield b""  # it is there as a whole from now on: see `Unpacking`
        out: bytes = snappy.uncompress(bytes(block))
        yield out[:size_bytes]  # a block may hold nothing: whoever takes the pieces shall hear of it too
        for at in range(size_bytes, len(out), size_bytes):
            yield out[at : at + size_bytes]


def _lz4_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    view, at = memoryview(data), 0
    while not unpacker.eof:
        hungry = unpacker.needs_input
        more = view[at : at + _FEED_BYTES] if hungry else view[:0]
        at += len(more)
        out: bytes = unpacker.decompress(bytes(more), max_length=size_bytes)
        if out:
            yield out
        elif hungry and not more:
            raise WireError("lz4 frame ends early")


def _zstd_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    import zstandard

    # One-shot decompress() believes the frame's own content size; the streaming reader keeps to what we ask for.
    with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(size_bytes):
            yield piece


def _plain_pieces(data: Buffer, size_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(view), size_bytes):
        yield bytes(view[at : at + size_bytes])


_PIECES: dict[Codec, Callable[[Buffer, int], Iterator[bytes]]] = {
    Codec.NONE: _plain_pieces,
    Codec.GZIP: _gzip_pieces,
    Codec.SNAPPY: _snappy_pieces,
    Codec.LZ4: _lz4_pieces,
    Codec.ZSTD: _zstd_pieces,
}


class Packer(NamedTuple):
    """Packs data that comes in pieces: ``add`` each, then ``finish``; what both give, joined, is the packed data."""

    add: Callable[[bytes], bytes]
    finish: Callable[[], bytes]


class _Xerial:
    """Snappy in blocks of 32 KiB, each behind its length."""

    def __init__(self) -> None:
        self._waiting = b""
        self._head = _XERIAL + struct.pack(">ii", 1, 1)

    def add(self, piece: bytes, *, least: int = _XERIAL_BLOCK_BYTES) -> bytes:
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


def packer(codec: Codec, level: int | None = None) -> Packer:
    """Begin to pack; ``level`` as the topic settings ``compression.{gzip,lz4,zstd}.level`` give it."""
    if codec is Codec.GZIP:
        gzip = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return Packer(gzip.compress, gzip.flush)
    if codec is Codec.SNAPPY:
        xerial = _Xerial()
        return Packer(xerial.add, xerial.finish)
    if codec is Codec.LZ4:
        import lz4.frame

        frame = lz4.frame.LZ4FrameCompressor(
            compression_level=0 if level is None else level, block_size=lz4.frame.BLOCKSIZE_MAX64KB
        )
        head = [frame.begin()]

        def begun(data: bytes) -> bytes:
            return (head.pop() if head else b"") + data

        return Packer(lambda piece: begun(frame.compress(piece)), lambda: begun(frame.flush()))
    if codec is Codec.ZSTD:
        import zstandard

        zstd = zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compressobj()
        return Packer(zstd.compress, zstd.flush)
    return Packer(bytes, bytes)


_CODECS = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """The codec a batch's attributes name.

    Raises:
        WireError: bits 0 to 2 name none.
    """
    number = attributes & 0x07
    if number < len(_CODECS):
        return _CODECS[number]
    raise WireError(f"unknown codec {number}")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Pack data that is all there: a library that knows the size at once does it better."""
    if codec is Codec.LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            bytes(data), compression_level=0 if level is None else level, block_size=lz4.frame.BLOCKSIZE_MAX64KB
        )
        return frame
    if codec is Codec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(
            bytes(data)
        )
    pack = packer(codec, level)
    return pack.add(bytes(data)) + pack.finish()


def pieces(codec: Codec, data: Buffer, size_bytes: int) -> Iterator[bytes]:
    """Unpack data a little at a time, ``size_bytes`` at most: whoever takes them decides how much is enough.

    A piece may be empty: data may be long and hold nothing, and others want their turn meanwhile.

    Raises:
        WireError: not data of this codec.
    """
    try:
        yield from _PIECES[codec](data, size_bytes)
    except WireError:
        raise
    except Exception as error:  # noqa: BLE001,RUF100 - each library has exceptions of its own, some of them bare
        raise WireError(f"bad {codec.name.lower()} data: {error}") from None


class Unpacking:
    """Data that is unpacked a little at a time, as far as a limit; what is not packed has none.

    Many may be at it at once, each in a pause, and then it counts what each one's codec keeps: a window in zstd, a
    whole block in snappy. So whoever can wait does so once it is ``heavy``, before the next piece.
    """

    def __init__(self, codec: Codec, data: Buffer, size_bytes: int, limit: int = DEFAULT_LIMIT_BYTES) -> None:
        self._codec = codec
        self._limit = limit
        self._pieces = pieces(codec, data, size_bytes)
        self._bytes = 0
        self.heavy = False
        """Whether it keeps, or will with the next piece, so much that not everybody may at once."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The next piece.

        Raises:
            WireError: not data of this codec; UnpacksTooLarge: more than the limit.
        """
        piece = next(self._pieces)
        self._bytes += len(piece)
        if self._codec is not Codec.NONE:
            if self._bytes > self._limit:
                raise UnpacksTooLarge(self._codec, self._limit)
            self.heavy = self.heavy or self._bytes > FREE_BYTES or (not piece and self._codec is Codec.SNAPPY)
        return piece


def decompress(codec: Codec, data: Buffer, limit: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """Unpack data to at most ``limit`` bytes.

    Raises:
        WireError: not data of this codec; UnpacksTooLarge: more than ``limit`` bytes come out.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        _check_claims(data, limit)
    out = []
    left = limit
    for piece in pieces(codec, data, min(_PIECE_BYTES, limit + 1)):
        left -= len(piece)
        if left < 0:
            raise UnpacksTooLarge(codec, limit)
        if piece:
            out.append(piece)
    return out[0] if len(out) == 1 else b"".join(out)


def _check_claims(data: Buffer, limit: int) -> None:
    """A snappy block is unpacked whole: that it is too large must be known before."""
    claimed = sum(_snappy_raw_size(block) for block in _snappy_blocks(memoryview(data)))
    if claimed > limit:
        raise UnpacksTooLarge(Codec.SNAPPY, limit)


_MAGIC = {int(Codec.GZIP): _GZIP, int(Codec.LZ4): _LZ4}
_SKIPPABLE = b"\x2a\x4d\x18"
"""The last three bytes with which a zstd frame begins that holds no data."""
_SNAPPY_HEAD_BYTES = 6
"""A length of at most five bytes, and the first element."""


def begins_like(codec: int, data: Buffer) -> bool:
    """Whether data begins as this codec's does: a look at its first bytes, which unpacks nothing."""
    magic = _MAGIC.get(codec)
    if magic is not None:
        return data[: len(magic)] == magic
    if codec == Codec.ZSTD:
        return data[:4] == _ZSTD or data[1:4] == _SKIPPABLE
    if codec == Codec.SNAPPY:
        start = _XERIAL_HEADER_BYTES + 4 if data[:8] == _XERIAL else 0
        head, at = data[start : start + _SNAPPY_HEAD_BYTES], 0
        while at < len(head) and head[at] >= 0x80:  # the length of what the block unpacks to
            at += 1
        return at + 1 < len(head) and head[at + 1] & 3 == 0  # nothing was written yet that could be copied
    return True
