"""Decoding of frames and record batches into fields with their byte ranges, for ``ottla decode`` and the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.wire.api_keys import ApiKey, request_class, request_header_version, response_class, response_header_version
from ottla.wire.codec import interpreter
from ottla.wire.codec.explain import explain, format_comment, resolve_path
from ottla.wire.codec.primitives import Buffer, read_bytes, read_varlong
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import parse_request
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


class FrameFields(NamedTuple):
    """Explanations of the parts of a frame that are not fields of a message."""

    size: int
    """Length of the frame in bytes, these four left out."""
    tags: int
    """Number of tagged fields at the end of a struct in flexible versions (KIP-482); each has tag, size and value."""
    records: bytes
    """Records of the batch; compressed together when the attributes name a codec."""
    record: bytes
    """Record of a batch: its timestamp and offset are stored as differences from those of the batch."""
    trailing_bytes: bytes
    """Bytes after the last field."""


class FieldSpan(NamedTuple):
    """Decoded field with its byte range (``start`` to before ``stop``), path and value."""

    start: int
    stop: int
    path: str
    value: Any
    owner: type | None = None
    """Class that declares the field, whose docstrings explain it; None if there is no explanation."""
    field: str = ""


class Explainer:
    """Source of field explanations that returns each only once, so that arrays of structs do not repeat them."""

    def __init__(self) -> None:
        self._shown: set[tuple[type, str]] = set()

    def explain_once(self, owner: type | None, field: str) -> str:
        """Return the explanation of a field, or ``""`` if it has none or has been returned before."""
        if owner is None or (owner, field) in self._shown:
            return ""
        self._shown.add((owner, field))
        return explain(owner).fields.get(field, "")


class _SpanCollector:
    def __init__(self, cls: type[Message], prefix: str = "") -> None:
        self.spans: list[FieldSpan] = []
        self.cls = cls
        self.prefix = prefix

    def __call__(self, path: str, start: int, stop: int, value: Any) -> None:
        cls, field = resolve_path(self.cls, path)
        owner = FrameFields if field == "tags" else cls
        self.spans.append(FieldSpan(start, stop, self.prefix + path, value, owner, field))


def message_spans(
    cls: type[Message], version: int, raw: Buffer, pos: int = 0, prefix: str = ""
) -> tuple[list[FieldSpan], int]:
    """Return the fields of a message at ``pos`` of ``raw`` with their byte ranges, and the position after it.

    The fields of record batches in it are included; the records of a compressed batch are one field. ``prefix``
    precedes the path of each field.

    Raises:
        WireError: the bytes are not a valid message of this class and version.
    """
    collector = _SpanCollector(cls, prefix)
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
    """Return the fields of a request frame, which begins with its size prefix, including size, header and records.

    Bytes after the message are a field of their own.

    Raises:
        WireError: the frame is not a valid request.
    """
    view = memoryview(raw)
    size, _ = read_bytes(view, 0, 4)
    request = parse_request(view[4:])
    out = [FieldSpan(0, 4, "size", int.from_bytes(size, "big"), FrameFields, "size")]
    header, pos = message_spans(RequestHeader, request_header_version(request.key, request.version), view, 4, "header.")
    out += header
    body, pos = message_spans(request_class(request.key), request.version, view, pos, f"{request.key.name}.")
    return out + body + _trailing_span(view, pos)


def response_spans(key: ApiKey, version: int, raw: Buffer) -> list[FieldSpan]:
    """Return the fields of a response frame, including size and header; ``key`` and ``version`` are the request's.

    Raises:
        WireError: the frame is not a valid response of this API and version.
    """
    view = memoryview(raw)
    size, _ = read_bytes(view, 0, 4)
    out = [FieldSpan(0, 4, "size", int.from_bytes(size, "big"), FrameFields, "size")]
    header, pos = message_spans(ResponseHeader, response_header_version(key, version), view, 4, "header.")
    body, pos = message_spans(response_class(key), version, view, pos, f"{key.name}.")
    return out + header + body + _trailing_span(view, pos)


def _trailing_span(view: memoryview, pos: int) -> list[FieldSpan]:
    return [FieldSpan(pos, len(view), "left over", "", FrameFields, "trailing_bytes")] if pos < len(view) else []


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
    """Return the meaning of a batch's attributes as text, such as ``gzip, log append time``."""
    labels = [("none", "gzip", "snappy", "lz4", "zstd")[attributes & 7] if attributes & 7 < 5 else "codec?"]
    for bit, word in (
        (TIMESTAMP_TYPE_BIT, "log append time"),
        (TRANSACTIONAL_BIT, "transactional"),
        (CONTROL_BIT, "control"),
        (DELETE_HORIZON_BIT, "delete horizon set"),
    ):
        if attributes & bit:
            labels.append(word)
    return ", ".join(labels)


def batch_spans(raw: Buffer, pos: int = 0, prefix: str = "", *, hides_records: bool = False) -> Iterator[FieldSpan]:
    """Yield the fields of every batch from ``pos`` on: 13 header fields, then each record.

    ``hides_records``: one span stands for all records of a batch, as for those of a compressed one.

    Raises:
        WireError: a batch is malformed.
    """
    for number, (at, header) in enumerate(iterate_batches(raw, pos)):
        name = f"{prefix}batch[{number}]."
        for (start, stop, field), value in zip(_BATCH_FIELDS, header, strict=True):
            shown: Any = value
            if field == "crc":
                shown = f"{value:#010x} ({'valid' if crc_matches(raw, header, at) else 'INVALID'})"
            elif field == "attributes":
                shown = f"{value:#06x} ({describe_attributes(value)})"
            yield FieldSpan(at + start, at + stop, name + field, shown, BatchHeader, field)
        end = at + header.size_bytes
        if hides_records or header.attributes & 7:
            count = f"{header.records_count} records{', compressed' if header.attributes & 7 else ''}"
            yield FieldSpan(at + HEADER_BYTES, end, name + "records", count, FrameFields, "records")
        else:
            yield from _record_spans(raw, header, at, name)


def _record_spans(raw: Buffer, header: BatchHeader, at: int, name: str) -> Iterator[FieldSpan]:
    pos = at + HEADER_BYTES
    for number, record in enumerate(iterate_records(raw, header, at)):
        size, start = read_varlong(raw, pos)
        yield FieldSpan(pos, start + size, f"{name}record[{number}]", record._asdict(), FrameFields, "record")
        pos = start + size


def format_spans(
    spans: list[FieldSpan], raw: Buffer, width: int = 12, explainer: Explainer | None = None
) -> Iterator[str]:
    """Yield lines ``position  bytes  path = value``, with explanations above them if an explainer is given.

    Args:
        spans: Fields to print.
        raw: Bytes that the spans refer to.
        width: Bytes of a field that are printed in hexadecimal; more are shown as ``..``.
        explainer: Source of the explanations.
    """
    for span in spans:
        if explainer is not None:
            yield from format_comment(explainer.explain_once(span.owner, span.field), 8)
        data = bytes(memoryview(raw)[span.start : span.stop])
        text = data[:width].hex(" ") + (" .." if len(data) > width else "")
        value = span.value
        shown = value.hex() if isinstance(value, bytes) else repr(value) if isinstance(value, str) else value
        yield f"{span.start:6d}  {text:<{width * 3 + 2}} {span.path} = {shown}"


__all__ = [
    "Explainer",
    "FieldSpan",
    "WireError",
    "batch_spans",
    "format_spans",
    "message_spans",
    "request_spans",
    "response_spans",
]
