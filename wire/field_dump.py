"""Bytes beside what they mean: every field of a frame or a batch with its place. What ``ottla decode`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.wire.api_keys import ApiKey, request_class, request_header_version, response_class, response_header_version
from ottla.wire.codec import interpreter
from ottla.wire.codec.primitives import Buffer, read_bytes
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.headers import RequestHeader, ResponseHeader
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_matches,
    iterate_batches,
)
from ottla.wire.record_batch.records import iterate_records


class FieldSpan(NamedTuple):
    """A run of bytes and what it is."""

    start: int
    stop: int
    path: str
    value: Any


class _SpanCollector:
    def __init__(self, prefix: str = "") -> None:
        self.spans: list[FieldSpan] = []
        self.prefix = prefix

    def __call__(self, path: str, start: int, stop: int, value: Any) -> None:
        self.spans.append(FieldSpan(start, stop, self.prefix + path, value))


def message_spans(
    cls: type[Message], version: int, raw: Buffer, pos: int = 0, prefix: str = ""
) -> tuple[list[FieldSpan], int]:
    """The fields of a message, and the position after it; record data inside it is taken apart too.

    Raises:
        WireError: the bytes are not this message.
    """
    collector = _SpanCollector(prefix)
    _, end = interpreter.decode(cls, version, raw, pos, collector)
    out: list[FieldSpan] = []
    for span in collector.spans:
        out.append(span)
        if isinstance(span.value, memoryview) and len(span.value) >= HEADER_BYTES:
            start = span.stop - len(span.value)
            out[-1] = span._replace(stop=start, value=f"{len(span.value)} bytes of batches")
            out += batch_spans(memoryview(raw)[: span.stop], start, f"{span.path}.")
    return out, end


def request_spans(raw: Buffer) -> list[FieldSpan]:
    """A whole request frame, its size included.

    Raises:
        WireError: not a request.
    """
    from ottla.wire.framing import parse_request

    view = memoryview(raw)
    size, _ = read_bytes(view, 0, 4)
    request = parse_request(view[4:])
    out = [FieldSpan(0, 4, "size", int.from_bytes(size, "big"))]
    header, pos = message_spans(RequestHeader, request_header_version(request.key, request.version), view, 4, "header.")
    out += header
    body, pos = message_spans(request_class(request.key), request.version, view, pos, f"{request.key.name}.")
    return out + body + _trailing_span(view, pos)


def response_spans(key: ApiKey, version: int, raw: Buffer) -> list[FieldSpan]:
    """A whole response frame; which request it answers must be known.

    Raises:
        WireError: not that response.
    """
    view = memoryview(raw)
    size, _ = read_bytes(view, 0, 4)
    out = [FieldSpan(0, 4, "size", int.from_bytes(size, "big"))]
    header, pos = message_spans(ResponseHeader, response_header_version(key, version), view, 4, "header.")
    body, pos = message_spans(response_class(key), version, view, pos, f"{key.name}.")
    return out + header + body + _trailing_span(view, pos)


def _trailing_span(view: memoryview, pos: int) -> list[FieldSpan]:
    return [FieldSpan(pos, len(view), "left over", "")] if pos < len(view) else []


_BATCH_FIELDS = (
    (0, 8, "base_offset"),
    (8, 12, "batch_length"),
    (12, 16, "partition_leader_epoch"),
    (16, 17, "magic"),
    (17, 21, "crc"),
    (21, 23, "attributes"),
    (23, 27, "last_offset_delta"),
    (27, 35, "base_timestamp"),
    (35, 43, "max_timestamp"),
    (43, 51, "producer_id"),
    (51, 53, "producer_epoch"),
    (53, 57, "base_sequence"),
    (57, 61, "records_count"),
)


def describe_attributes(attributes: int) -> str:
    """``gzip, log append time``: the bits in words."""
    words = [("none", "gzip", "snappy", "lz4", "zstd")[attributes & 7] if attributes & 7 < 5 else "codec?"]
    for bit, word in (
        (TIMESTAMP_TYPE_BIT, "log append time"),
        (TRANSACTIONAL_BIT, "transactional"),
        (CONTROL_BIT, "control"),
        (DELETE_HORIZON_BIT, "delete horizon set"),
    ):
        if attributes & bit:
            words.append(word)
    return ", ".join(words)


def batch_spans(raw: Buffer, pos: int = 0, prefix: str = "") -> Iterator[FieldSpan]:
    """Every batch from ``pos`` on: the 13 header fields, then the records.

    Raises:
        WireError: something there is no batch.
    """
    for number, (at, header) in enumerate(iterate_batches(raw, pos)):
        name = f"{prefix}batch[{number}]."
        for (start, stop, field), value in zip(_BATCH_FIELDS, header, strict=True):
            shown: Any = value
            if field == "crc":
                shown = f"{value:#010x} ({'right' if crc_matches(raw, header, at) else 'WRONG'})"
            elif field == "attributes":
                shown = f"{value:#06x} ({describe_attributes(value)})"
            yield FieldSpan(at + start, at + stop, name + field, shown)
        end = at + header.size_bytes
        if header.attributes & 7:
            yield FieldSpan(at + HEADER_BYTES, end, name + "records", f"{header.records_count} records, compressed")
        else:
            yield from _record_spans(raw, header, at, name)


def _record_spans(raw: Buffer, header: BatchHeader, at: int, name: str) -> Iterator[FieldSpan]:
    from ottla.wire.codec.primitives import read_varlong

    pos = at + HEADER_BYTES
    for number, record in enumerate(iterate_records(raw, header, at)):
        size, start = read_varlong(raw, pos)
        yield FieldSpan(pos, start + size, f"{name}record[{number}]", record._asdict())
        pos = start + size


def format_spans(spans: list[FieldSpan], raw: Buffer, width: int = 12) -> Iterator[str]:
    """Lines of ``position  bytes  field = value``."""
    for span in spans:
        data = bytes(memoryview(raw)[span.start : span.stop])
        text = data[:width].hex(" ") + (" .." if len(data) > width else "")
        value = span.value
        shown = value.hex() if isinstance(value, bytes) else repr(value) if isinstance(value, str) else value
        yield f"{span.start:6d}  {text:<{width * 3 + 2}} {span.path} = {shown}"


__all__ = ["FieldSpan", "WireError", "batch_spans", "message_spans", "format_spans", "request_spans", "response_spans"]
