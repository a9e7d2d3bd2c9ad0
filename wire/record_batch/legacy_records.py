"""Reader of the message formats 0 and 1 (magic 0 and 1), which segments of old Kafka versions may contain.

Layout: int64 offset, int32 size, then uint32 CRC-32 (zlib) of what follows, int8 magic, int8 attributes, in magic 1
int64 timestamp, int32-sized key, int32-sized value. A compressed message's value is itself such a sequence; inside it,
magic 1 offsets count from 0 and the wrapper carries the offset of the last one.

Source: ``LegacyRecord.java``, ``AbstractLegacyRecordBatch.java`` (apache/kafka 4.3.1). Magic 1 brought times (KIP-32)
and offsets that count from 0 (KIP-31). The functions with ``any`` in their names accept batches of format 2 too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES
from ottla.wire.record_batch.batch_header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    crc_matches,
    parse_header,
    read_offset_and_size,
)
from ottla.wire.record_batch.compression import CompressionType, compression_type_of, decompress
from ottla.wire.record_batch.compression_headers import replace_lz4_header_checksum
from ottla.wire.record_batch.record import Record

MIN_MESSAGE_BYTES = 26
"""Minimum size of a message: magic 0 with null key and null value, including offset and size."""
MAGIC_PREFIX_BYTES = MAGIC_OFFSET + 1
"""Bytes needed to read size and magic of a batch or message."""
_OVERHEAD = struct.Struct(">qi")


def min_batch_bytes(buf: Buffer, pos: int = 0) -> int:
    """Return the minimum size in bytes of the batch or old message at ``pos``, by the magic in its first 17 bytes."""
    return HEADER_BYTES if buf[pos + MAGIC_OFFSET] >= 2 else MIN_MESSAGE_BYTES


def parse_any_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header of the batch or old message at ``pos``; the bytes after the header need not be in ``buf``.

    An old message has its own offset as first and last offset, and a ``records_count`` of 1, also if it is compressed;
    fields that it lacks are -1.

    Raises:
        WireError: fewer bytes than a header, a size below that of a header, or an unknown magic.
    """
    if len(buf) - pos < MAGIC_PREFIX_BYTES or buf[pos + MAGIC_OFFSET] >= 2:
        return parse_header(buf, pos)
    offset, size = _OVERHEAD.unpack_from(buf, pos)
    if size < MIN_MESSAGE_BYTES - LOG_OVERHEAD_BYTES or len(buf) - pos < MIN_MESSAGE_BYTES:
        raise WireError(f"message of {size} bytes")
    crc, magic, attributes = struct.unpack_from(">Ibb", buf, pos + LOG_OVERHEAD_BYTES)
    time = struct.unpack_from(">q", buf, pos + 18)[0] if magic == 1 else NO_TIMESTAMP
    return BatchHeader(offset, size, -1, magic, crc, attributes & 0x0F, 0, time, time, -1, -1, -1, 1)


def any_crc_matches(buf: Buffer, header: BatchHeader, pos: int = 0) -> bool:
    """Return whether the checksum of the batch or old message at ``pos`` equals that in its header."""
    if header.magic >= 2:
        return crc_matches(buf, header, pos)
    return zlib.crc32(memoryview(buf)[pos + MAGIC_OFFSET : pos + header.size_bytes]) == header.crc


def iterate_any_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each consecutive batch or old message; stop before an incomplete one.

    Raises:
        WireError: a batch or message is malformed.
    """
    while len(buf) - pos >= MAGIC_PREFIX_BYTES:
        size = read_offset_and_size(buf, pos)[1]
        if size < min_batch_bytes(buf, pos):
            raise WireError(f"batch of {size} bytes at {pos}")
        if len(buf) - pos < size:
            return
        yield pos, parse_any_header(buf, pos)
        pos += size


def _blob(buf: memoryview, pos: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", buf, pos)
    pos += 4
    if size == -1:
        return None, pos
    if size < 0 or size > len(buf) - pos:
        raise WireError(f"{size} bytes in a message with {len(buf) - pos} left")
    return bytes(buf[pos : pos + size]), pos + size


def _message(offset: int, raw: memoryview) -> tuple[int, int, Record]:
    """Return magic, attributes and content of one message, after verifying its checksum.

    Raises:
        WireError: a bad checksum, another magic, or malformed content.
    """
    try:
        crc, magic, attributes = struct.unpack_from(">Ibb", raw)
        if zlib.crc32(raw[4:]) != crc:
            raise WireError(f"message at offset {offset}: bad CRC")
        if magic not in (0, 1):
            raise WireError(f"message of magic {magic}")
        timestamp, pos = (struct.unpack_from(">q", raw, 6)[0], 14) if magic == 1 else (-1, 6)
        key, pos = _blob(raw, pos)
        value, pos = _blob(raw, pos)
    except struct.error as error:
        raise WireError(f"message at offset {offset} is cut off: {error}") from None
    return magic, attributes, Record(offset, timestamp, key, value)


def iterate_messages(buf: Buffer, limit: int = MAX_DECOMPRESSED_BYTES, *, nested: bool = False) -> Iterator[Record]:
    """Yield every record of consecutive messages, decompressing them; stop before an incomplete message.

    Offsets are those in the log, with ``nested`` those stored. ``limit``: maximum decompressed size of each compressed
    message; ``nested``: the messages are the value of one.

    Raises:
        WireError: a malformed message, or a bad checksum, magic, codec or nesting; `DecompressedSizeExceeded`.
    """
    view = memoryview(buf)
    pos = 0
    while len(view) - pos >= _OVERHEAD.size:
        offset, size = _OVERHEAD.unpack_from(view, pos)
        pos += _OVERHEAD.size
        if size < 14:
            raise WireError(f"message of {size} bytes")
        if size > len(view) - pos:
            return
        magic, attributes, record = _message(offset, view[pos : pos + size])
        pos += size
        codec = compression_type_of(attributes)
        if codec is CompressionType.NONE:
            yield record
            continue
        if nested or record.value is None:
            raise WireError("a compressed message inside, or without, a compressed message")
        packed = record.value
        if magic == 0 and codec is CompressionType.LZ4:
            packed = replace_lz4_header_checksum(packed)
        inner = list(iterate_messages(decompress(codec, packed, limit), limit, nested=True))
        if not inner:
            raise WireError("a compressed message that holds none")
        shift = offset - inner[-1].offset if magic == 1 else 0
        append_time = attributes & 0x08
        for one in inner:
            yield one._replace(
                offset=one.offset + shift, timestamp_ms=record.timestamp_ms if append_time else one.timestamp_ms
            )
