"""Encoding and decoding of the primitive types: fixed-size numbers and varints; uuids as text.

Functions that read take a buffer and a position, and return ``(value, next position)``; functions that write return
bytes.
Sources: Kafka protocol guide; ``ByteUtils.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import base64
import re
import struct

from ottla.wire.errors import WireError
from ottla.wire.limits import MAX_STRING_BYTES

Buffer = bytes | bytearray | memoryview


FIXED_SIZE_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def read_bytes(buf: Buffer, pos: int, size: int) -> tuple[memoryview, int]:
    """Return a view of the next ``size`` bytes, and the position after them.

    Raises:
        WireError: ``size`` is negative or exceeds the buffer.
    """
    stop = pos + size
    if size < 0 or stop > len(buf):
        raise WireError(f"{size} bytes wanted at {pos}, {len(buf) - pos} there")
    return memoryview(buf)[pos:stop], stop


def read_fixed(kind: str, buf: Buffer, pos: int) -> tuple[int | float | bool, int]:
    """Return a big-endian number of type ``kind`` (``int32``) or a boolean, and the position after it.

    Any byte but 0 is True.

    Raises:
        WireError: the buffer ends within the value.
    """
    code = struct.Struct(">" + FIXED_SIZE_FORMATS[kind])
    raw, pos = read_bytes(buf, pos, code.size)
    return code.unpack(raw)[0], pos


def write_fixed(kind: str, value: float) -> bytes:
    """Return the big-endian bytes of a number of type ``kind``, such as ``int32``.

    Raises:
        WireError: the number is out of the type's range.
    """
    try:
        return struct.pack(">" + FIXED_SIZE_FORMATS[kind], value)
    except struct.error as error:
        raise WireError(f"{value!r} is no {kind}: {error}") from None


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint (LEB128) of at most 32 bits and five bytes, and the position after it.

    Raises:
        WireError: the buffer ends within the varint, or it is longer than five bytes.
    """
    try:
        first = buf[pos]
    except IndexError:
        raise WireError(f"a varint at {pos} of {len(buf)} bytes") from None
    return (first, pos + 1) if first < 0x80 else read_uvarint_continuation(buf, pos + 1, first)


def read_uvarint_continuation(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Return an unsigned varint of more than one byte, and the position after it.

    ``first``: its first byte, at least 0x80; ``pos``: position of the second.

    Raises:
        WireError: the buffer ends within the varint, or it is longer than five bytes.
    """
    value = first & 0x7F
    try:
        for shift in (7, 14, 21, 28):
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF, pos
    except IndexError:
        raise WireError("a varint that is cut off") from None
    raise WireError("a varint of more than five bytes")


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS = tuple(_uvarint(n) for n in range(1024))
"""Encoded unsigned varints of 0 to 1023."""


def write_uvarint(value: int) -> bytes:
    """Return the unsigned varint (LEB128) of a number of at most 32 bits.

    Raises:
        WireError: negative, or more than 32 bits.
    """
    if 0 <= value < 1024:
        return SMALL_UVARINTS[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise WireError(f"{value} is no uvarint")
    return _uvarint(value)


def write_string_length(value: int) -> bytes:
    """Return the unsigned varint of ``value``, the length of a compact string plus one.

    Raises:
        WireError: the string is longer than `MAX_STRING_BYTES`, so that a reader would reject it.
    """
    if value > MAX_STRING_BYTES + 1:
        raise WireError(f"a string of {value - 1} bytes")
    return write_uvarint(value)


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a signed (zig-zag) varint of at most 64 bits and ten bytes, and the position after it.

    Raises:
        WireError: the varint is longer than ten bytes.
        IndexError: the buffer ends within the varint.
    """
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    value = byte & 0x7F
    for shift in (7, 14, 21, 28, 35, 42, 49, 56, 63):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
    raise WireError("a varlong of more than ten bytes")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a signed (zig-zag) varint of at most 32 bits and five bytes, and the position after it.

    All numbers of a record but its timestamp delta have this form.

    Raises:
        WireError: the varint is longer than five bytes.
        IndexError: the buffer ends within the varint.
    """
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
    raise WireError("a varint of more than five bytes")


def write_varlong(value: int) -> bytes:
    """Return the zig-zag varint of a signed number of at most 64 bits."""
    return _uvarint((value << 1) ^ (value >> 63))


def uuid_to_string(uuid: bytes) -> str:
    """Return a 16-byte uuid as 22 characters of base64url without padding, as Kafka's ``Uuid.toString``."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


_UUID_STRING = re.compile(r"[A-Za-z0-9_-]{22}(==)?", re.ASCII)


def uuid_from_string(text: str) -> bytes:
    """Return the 16 bytes of a uuid in base64url, with or without padding (``Uuid.fromString``).

    Raises:
        ValueError: ``text`` is not a uuid in base64url.
    """
    if not _UUID_STRING.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no uuid")
    return base64.urlsafe_b64decode(text[:22] + "==")
