"""Fields of the records of a batch with their byte ranges.

Source: ``DefaultRecord.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.wire.codec.primitives import Buffer, read_varlong
from ottla.wire.errors import WireError
from ottla.wire.field_dump import FieldSpan

CONTENT_FIELDS = frozenset({"key", "value", "header_value"})
"""Fields of a record whose bytes belong to its user."""


class RecordFields:
    """Explanations of the fields of a record in a batch; numbers are zig-zag varints."""

    size: int
    """Size of the record in bytes, without this field."""
    attributes: int
    """Attributes of the record; none are defined."""
    timestamp_delta: int
    """Difference between the timestamp of the record and the base timestamp of the batch."""
    offset_delta: int
    """Difference between the offset of the record and the base offset of the batch."""
    key_size: int
    """Size of the key in bytes; -1 for a null key."""
    key: bytes
    """Key; it usually selects the partition."""
    value_size: int
    """Size of the value in bytes; -1 for a null value, which is a tombstone in a compacted topic."""
    value: bytes
    """Value."""
    headers_count: int
    """Number of headers."""
    header_name_size: int
    """Size of the name of a header in bytes."""
    header_name: str
    """Name of a header."""
    header_value_size: int
    """Size of the value of a header in bytes; -1 for a null value."""
    header_value: bytes
    """Value of a header."""


def record_field_spans(raw: Buffer, position: int, stop: int, count: int, prefix: str) -> Iterator[FieldSpan]:
    """Yield the span of each field of ``count`` uncompressed records of format 2 in ``raw[position:stop]``.

    A span names a field, such as ``record[0].key``, with its first byte, the byte after its last one, and its value.

    Raises:
        WireError: the records are malformed.
    """
    view = memoryview(raw)[:stop]
    try:
        for number in range(count):
            position = yield from _one_record(view, position, f"{prefix}record[{number}].")
    except IndexError:
        raise WireError("a record is cut off") from None


def _one_record(view: memoryview, position: int, prefix: str) -> Generator[FieldSpan, None, int]:
    """Yield the span of each field of the record at a position; return the position after the record.

    Raises:
        WireError, IndexError: the record is malformed or cut off.
    """
    size, start = read_varlong(view, position)
    yield _span(position, start, prefix, "size", size)
    position = start
    if size < 0 or size > len(view) - position:
        raise WireError(f"a record of {size} bytes, {len(view) - position} left")
    yield _span(position, position + 1, prefix, "attributes", view[position])
    position += 1
    for name in ("timestamp_delta", "offset_delta"):
        position = yield from _number(view, position, prefix, name)
    for name in ("key", "value"):
        position = yield from _blob(view, position, prefix, name)
    count, start = read_varlong(view, position)
    yield _span(position, start, prefix, "headers_count", count)
    position = start
    for number in range(count):
        for name in ("header_name", "header_value"):
            position = yield from _blob(view, position, f"{prefix}header[{number}].", name)
    return position


def _number(view: memoryview, position: int, prefix: str, name: str) -> Generator[FieldSpan, None, int]:
    value, stop = read_varlong(view, position)
    yield _span(position, stop, prefix, name, value)
    return stop


def _blob(view: memoryview, position: int, prefix: str, name: str) -> Generator[FieldSpan, None, int]:
    """Yield the size of a byte string, and the byte string unless it is null or empty; return the position after it.

    Raises:
        WireError, IndexError: it is cut off.
    """
    size, start = read_varlong(view, position)
    yield _span(position, start, prefix, f"{name}_size", size)
    if size <= 0:
        return start
    if size > len(view) - start:
        raise WireError(f"{size} bytes in a record with {len(view) - start} left")
    content = bytes(view[start : start + size])
    yield _span(
        start, start + size, prefix, name, content.decode("utf-8", "replace") if name == "header_name" else content
    )
    return start + size


def _span(start: int, stop: int, prefix: str, field: str, value: object) -> FieldSpan:
    return FieldSpan(start, stop, prefix + field, value, RecordFields, field)
