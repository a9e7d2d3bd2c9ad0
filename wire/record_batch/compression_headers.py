"""Headers of compressed data: gzip members, xerial snappy streams, lz4 frames and zstd frames.

`check_compressed_prefix` is the check of a Produce request: it reads the first bytes of a batch's records without
decompression, and rejects what Kafka's decompressors reject by these bytes. `decompression` uses the same parsers.

Source: ``Lz4BlockInputStream.readHeader``, ``Lz4BlockOutputStream.FLG`` and ``BD``, ``GzipCompression``,
``SnappyCompression``, ``ZstdCompression`` (apache/kafka 4.3.1); ``java.util.zip.GZIPInputStream.readHeader``;
``SnappyInputStream`` (snappy-java 1.1.10); RFC 8878 section 3.1.1.1; the LZ4 frame format 1.6.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.limits import SNAPPY_MAX_RATIO

GZIP_MAGIC = b"\x1f\x8b"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
XERIAL_HEAD = struct.unpack(">i", XERIAL_MAGIC[:4])[0]
"""First four bytes of a xerial header as an integer: found in place of a block size, it begins another stream."""
ZSTD_MAX_WINDOW_BYTES = 1 << 27
"""Maximum zstd window: ``ZSTD_WINDOWLOG_LIMIT_DEFAULT``, which zstd-jni does not change."""
ZSTD_ONE_PASS_BYTES = 16 * 1024
"""``ZstdCompression.decompressionOutputSize``: the library does not check the window size of a complete frame whose
content fits the output buffer."""
ZSTD_INPUT_BYTES = 131_075
"""``ZSTD_DStreamInSize``, the input buffer of zstd-jni: an incomplete frame in the same buffer as the end of the
previous frame counts as the end of the data."""
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Last three bytes of the magic number of a skippable zstd frame; the first byte is 0x50 to 0x5f."""
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
_MAX_HEADERS_CHECKED = 4
"""Empty streams, frames or blocks that `check_compressed_prefix` skips before it accepts the rest unchecked."""

_VALID, _BAD_DATA, _NO_RECORDS = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD
_FEXTRA, _FNAME, _FCOMMENT, _FHCRC = 4, 8, 16, 2


# ---------------------------------------------------------------- gzip


def _zero_terminated(view: memoryview, at: int) -> int:
    size = 256
    while at < len(view):
        found = bytes(view[at : at + size]).find(0)
        if found >= 0:
            return at + found + 1
        at, size = at + size, min(2 * size, 65_536)
    raise WireError("gzip header ends early")


def gzip_header_end(view: memoryview, position: int) -> int:
    """Return the position of the deflate data of the gzip member at ``position``.

    Flags that RFC 1952 reserves are ignored, as in Java; zlib rejects them.

    Raises:
        WireError: the gzip header is missing, incomplete or corrupt.
    """
    if len(view) - position < 10:
        raise WireError("gzip header ends early")
    if view[position : position + 2] != GZIP_MAGIC or view[position + 2] != zlib.DEFLATED:
        raise WireError("not gzip data")
    start, flags = position, view[position + 3]
    position += 10
    if flags & _FEXTRA:
        if len(view) - position < 2:
            raise WireError("gzip header ends early")
        position += 2 + (view[position] | view[position + 1] << 8)
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            position = _zero_terminated(view, position)
    if flags & _FHCRC:
        if len(view) - position < 2:
            raise WireError("gzip header ends early")
        if view[position] | view[position + 1] << 8 != zlib.crc32(view[start:position]) & 0xFFFF:
            raise WireError("gzip header with a wrong checksum")
        position += 2
    if position > len(view):
        raise WireError("gzip header ends early")
    return position


def _check_gzip(data: Buffer) -> ErrorCode:
    if len(data) < 12 or data[:2] != GZIP_MAGIC or data[2] != zlib.DEFLATED:
        return _BAD_DATA
    # Optional header fields may be long and are not checked. The deflate block type 3 does not exist.
    if not data[3] & (_FEXTRA | _FNAME | _FCOMMENT | _FHCRC) and data[10] & 6 == 6:
        return _BAD_DATA
    return _VALID


# ---------------------------------------------------------------- snappy


def snappy_uncompressed_length(data: Buffer) -> int:
    """Return the decompressed size in the header of a raw snappy block.

    Raises:
        WireError: the block does not begin with a valid length.
    """
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


def xerial_header_follows(view: memoryview, position: int) -> bool:
    """Return True if another xerial stream begins at ``position``, where `XERIAL_HEAD` was read as a block size.

    Raises:
        WireError: fewer bytes than a header are left, or its version is below 1.
    """
    if len(view) - position < XERIAL_HEADER_BYTES:
        raise WireError("snappy header ends early")
    if view[position : position + 8] != XERIAL_MAGIC:
        return False
    (version,) = struct.unpack_from(">i", view, position + 8)
    if version < 1:
        raise WireError(f"snappy header of incompatible version {version}")
    return True


def _check_raw_snappy(head: bytes, size: int) -> ErrorCode:
    """Check a raw snappy block as `check_compressed_prefix`: a size, then a literal (a copy would have no source).

    Args:
        head: First ten bytes of the block, or all of it.
        size: Size of the block in bytes.
    """
    claimed = shift = tag_at = 0
    for byte in head[:5]:
        claimed |= (byte & 0x7F) << shift
        shift, tag_at = shift + 7, tag_at + 1
        if byte < 0x80:
            break
    else:
        return _BAD_DATA
    if claimed == 0:
        return _NO_RECORDS if tag_at == size else _BAD_DATA
    if claimed > SNAPPY_MAX_RATIO * size or tag_at >= len(head) or head[tag_at] & 3:
        return _BAD_DATA
    literal = head[tag_at] >> 2
    if literal >= 60:
        extra = literal - 59
        literal = int.from_bytes(head[tag_at + 1 : tag_at + 1 + extra], "little")
        tag_at += extra
    return _VALID if literal < claimed and tag_at + 1 + literal < size else _BAD_DATA


def _check_snappy(data: Buffer) -> ErrorCode:
    end = len(data)
    head = bytes(data[:30])
    if end < XERIAL_HEADER_BYTES or head[:8] != XERIAL_MAGIC:
        return _check_raw_snappy(head[:10], end)
    at, head = XERIAL_HEADER_BYTES, head[XERIAL_HEADER_BYTES:]
    for _ in range(_MAX_HEADERS_CHECKED):
        if len(head) < 4:
            return _NO_RECORDS
        size = int.from_bytes(head[:4], "big", signed=True)
        if size == XERIAL_HEAD:
            try:
                if not xerial_header_follows(memoryview(data), at):
                    return _NO_RECORDS
            except WireError:
                return _BAD_DATA
            at += XERIAL_HEADER_BYTES
        else:
            at += 4
            if not 0 < size <= end - at:
                return _BAD_DATA
            found = _check_raw_snappy(head[4 : 4 + min(size, 10)], size)
            if found is not _NO_RECORDS:
                return found
            at += size
        head = bytes(data[at : at + 14])
    return _VALID


# ---------------------------------------------------------------- lz4


class Lz4FrameDescriptor(NamedTuple):
    """Fields of an lz4 frame descriptor that are needed for decompression."""

    header_bytes: int
    max_block_bytes: int
    block_checksum: bool
    content_checksum: bool


def compute_lz4_header_checksum(descriptor: bytes) -> int:
    """Return the header checksum of an lz4 frame descriptor: the bytes between magic number and checksum."""
    # lazy: 1.0 ms, 10 kB: common descriptors have their checksums in a table
    from xxhash import xxh32_intdigest

    return xxh32_intdigest(descriptor) >> 8 & 0xFF


_LZ4_DESCRIPTORS = {
    bytes((0x60 | flags, number << 4)): Lz4FrameDescriptor(
        15 if flags & 8 else 7, 1 << 2 * number + 8, flags & 0x10 != 0, flags & 4 != 0
    )
    for flags in (0, 4, 8, 12, 16, 20, 24, 28)
    for number in (4, 5, 6, 7)
}
"""Accepted lz4 descriptors by FLG and BD byte: version 1, independent blocks of 64 KiB to 4 MiB, no dictionary."""
_WITHOUT_CONTENT_SIZE = [raw for raw, found in _LZ4_DESCRIPTORS.items() if found.header_bytes == 7]
_COMMON_LZ4_HEADERS = {
    LZ4_MAGIC + raw + bytes((checksum,)): _LZ4_DESCRIPTORS[raw]
    for raw, checksum in zip(_WITHOUT_CONTENT_SIZE, bytes.fromhex("82fb5173a70885b9ad843372bdffd98e"), strict=True)
}
"""Accepted lz4 headers without content size, by their bytes, with precomputed checksums."""


def parse_lz4_descriptor(head: bytes) -> Lz4FrameDescriptor:
    """Return the frame descriptor of lz4 data; ``head``: its first 15 bytes or more, or all of it.

    Raises:
        WireError: not an lz4 frame, or one that Kafka does not read: dependent blocks, a dictionary, reserved bits,
        another version or block size, a wrong header checksum.
    """
    found = _COMMON_LZ4_HEADERS.get(head[:7])
    if found is not None:
        return found
    if head[:4] != LZ4_MAGIC:
        raise WireError("not lz4 data")
    if len(head) < 7:
        raise WireError("lz4 header ends early")
    found = _LZ4_DESCRIPTORS.get(head[4:6])
    if found is None:
        raise WireError(f"lz4 frame descriptor not supported: flags 0x{head[4]:02x}, block size 0x{head[5]:02x}")
    checksum_at = found.header_bytes - 1
    if len(head) <= checksum_at:
        raise WireError("lz4 header ends early")
    if head[checksum_at] != compute_lz4_header_checksum(head[4:checksum_at]):
        raise WireError("lz4 header with a wrong checksum")
    return found


def replace_lz4_header_checksum(data: bytes) -> bytes:
    """Return lz4 data with a corrected header checksum: old clients included the magic number in it.

    Kafka ignores the checksum in messages of format 0 only (KAFKA-3160).
    """
    checksum_at = 14 if data[4:5] and data[4] & 8 else 6
    if len(data) <= checksum_at:
        return data
    checksum = compute_lz4_header_checksum(data[4:checksum_at])
    return data[:checksum_at] + bytes((checksum,)) + data[checksum_at + 1 :]


def _check_lz4(data: Buffer) -> ErrorCode:
    head = bytes(data[:19])
    try:
        header_bytes, max_block_bytes, _, _ = parse_lz4_descriptor(head)
    except WireError:
        return _BAD_DATA
    if len(head) < header_bytes + 4:
        return _BAD_DATA
    size = int.from_bytes(head[header_bytes : header_bytes + 4], "little") & 0x7FFFFFFF
    if size == 0:
        return _NO_RECORDS
    return _VALID if size <= max_block_bytes and size <= len(data) - header_bytes - 4 else _BAD_DATA


# ---------------------------------------------------------------- zstd


class ZstdFrameHeader(NamedTuple):
    """Header of a zstd frame with content, or of a skippable frame, without the fields that reading does not need."""

    header_bytes: int
    skipped_bytes: int | None
    """Size in bytes of a skippable frame's data; None for a frame with content."""
    window_bytes: int = 0
    content_bytes: int | None = None
    """Decompressed size; None if the header does not state it, and for a skippable frame."""
    checksum: bool = False

    @property
    def max_block_bytes(self) -> int:
        """Maximum size in bytes of a block of the frame, compressed and decompressed."""
        return min(self.window_bytes, _ZSTD_MAX_BLOCK_BYTES)

    @property
    def is_small(self) -> bool:
        """True if the library may decompress the frame in one pass, without a check of the window size."""
        return self.content_bytes is not None and self.content_bytes <= ZSTD_ONE_PASS_BYTES


def parse_zstd_frame_header(head: bytes) -> ZstdFrameHeader | None:
    """Return the header of a zstd or skippable frame from its first 18 bytes; None if ``head`` ends within the header.

    Raises:
        WireError: another frame, or one that needs a dictionary, has a reserved bit or a window of 2^32 bytes or more.
    """
    if head[:4] != ZSTD_MAGIC:
        if head[:1] and head[0] & 0xF0 == 0x50 and head[1:4] == _ZSTD_SKIPPABLE[: len(head) - 1]:
            return ZstdFrameHeader(8, int.from_bytes(head[4:8], "little")) if len(head) >= 8 else None
        if ZSTD_MAGIC.startswith(head):
            return None
        raise WireError("not zstd data")
    if len(head) < 5:
        return None
    flags = head[4]
    single_segment = flags & 0x20
    content_field = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    dictionary_at = 5 if single_segment else 6
    content_at = dictionary_at + (0, 1, 2, 4)[flags & 3]
    if len(head) < content_at + content_field:
        return None
    if flags & 8:
        raise WireError("zstd frame header with a reserved bit")
    content: int | None = None
    if content_field:
        content = int.from_bytes(head[content_at : content_at + content_field], "little")
        content += 256 if content_field == 2 else 0
    if single_segment:
        window = content or 0
    else:
        exponent, mantissa = head[5] >> 3, head[5] & 7
        if exponent > 21:
            raise WireError(f"zstd window of 2^{10 + exponent} bytes")
        window = (8 + mantissa) << exponent + 7
    if content_at > dictionary_at and any(head[dictionary_at:content_at]):
        raise WireError("zstd frame that needs a dictionary")
    return ZstdFrameHeader(content_at + content_field, None, window, content, flags & 4 != 0)


def _check_zstd(data: Buffer) -> ErrorCode:
    head = bytes(data[:18])
    view, at, cut_off = memoryview(data), 0, _BAD_DATA
    if not head:
        return _NO_RECORDS
    for _ in range(_MAX_HEADERS_CHECKED):
        try:
            frame = parse_zstd_frame_header(head)
        except WireError:
            return _BAD_DATA
        if frame is None:
            return cut_off
        at += frame.header_bytes
        if frame.skipped_bytes is None:
            break
        at += frame.skipped_bytes
        if at > len(view):
            return _BAD_DATA
        cut_off = _NO_RECORDS if len(view) <= ZSTD_INPUT_BYTES else _BAD_DATA
        head = bytes(view[at : at + 18])
    else:
        return _VALID
    if frame.window_bytes > ZSTD_MAX_WINDOW_BYTES and not frame.is_small:
        return _BAD_DATA
    block = int.from_bytes(view[at : at + 3], "little")
    size, kind = block >> 3, block >> 1 & 3
    if kind == 3 or size > frame.max_block_bytes:
        return _BAD_DATA
    if kind == 0 and cut_off is _NO_RECORDS:
        return _VALID  # of an incomplete raw block the available bytes are read
    return _VALID if len(view) - at >= 3 + (1 if kind == 1 else size) else cut_off


# ---------------------------------------------------------------- the check of a Produce request


def _accept(data: Buffer) -> ErrorCode:
    return _VALID


_CHECKS = (_accept, _check_gzip, _check_snappy, _check_lz4, _check_zstd)


def check_compressed_prefix(codec: int, data: Buffer) -> ErrorCode:
    """Check that a batch's compressed records begin as data of the codec that Kafka can decompress.

    Reads the headers at the beginning, a few dozen bytes, and decompresses nothing.

    Args:
        codec: Bits 0 to 2 of the batch's attributes, 0 to 4.
        data: Records of a batch whose record count is not 0.

    Returns:
        NONE (always for codec 0), or Kafka's error: UNKNOWN_SERVER_ERROR if its decompressor fails, INVALID_RECORD if
        the decompressed data is empty.
    """
    return _CHECKS[codec](data)
