"""Fields of a captured frame with their bytes: byte range, value and explanation of each, and a hex dump.

Hidden, in the values and in the bytes, are secrets, keys, values and header values of records, and compressed records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ottla.console.record_fields import CONTENT_FIELDS, record_field_spans
from ottla.jobs.job import Job
from ottla.tools.dump import is_secret
from ottla.tools.trace import SECRET_FIELDS
from ottla.wire.api_keys import ApiKey, request_class, request_header_version, response_class, response_header_version
from ottla.wire.codec import interpreter
from ottla.wire.codec.explain import explain, resolve_path
from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.field_dump import FieldSpan, FrameFields, batch_spans
from ottla.wire.messages.headers import RequestHeader, ResponseHeader
from ottla.wire.record_batch.batch_header import HEADER_BYTES, parse_header

MAX_FIELDS = 1000
"""Fields of a frame that are decoded: the interpreter does not yield, and each takes some microseconds."""
TOO_MANY_FIELDS = f"Only the first {MAX_FIELDS:,} fields are shown."
MAX_HEX_BYTES = 16 * 1024
BYTES_PER_ROW = 16
_VALUE_CHARS = 200
_SIZE_BYTES = 4
_CODEC_BITS = 0x07
"""Bits of the compression codec in the attributes of a batch."""


class FrameField(NamedTuple):
    """Field of a frame: number on the page, byte range, path, value and explanation as texts."""

    number: int
    start: int
    stop: int
    path: str
    value: str
    explanation: str
    hidden_from: int
    """Position of the first byte that is not shown; ``stop`` if all are shown."""


class HexPart(NamedTuple):
    """Bytes of a row that belong to one field; ``field`` is -1 for bytes that belong to none."""

    field: int
    text: str


class HexRow(NamedTuple):
    """Row of a hex dump: position of its first byte, and its parts."""

    position: int
    parts: list[HexPart]


class FrameFieldList(NamedTuple):
    """Fields of a frame, and the reason for which the fields after them are missing; empty if none are."""

    fields: list[FrameField]
    problem: str


class _TooManyFieldsError(Exception):
    """Raised to end decoding after `MAX_FIELDS` fields."""


class _ValueCollector:
    """Callback of `interpreter.decode` that appends each decoded value, with its byte range, to a list.

    Raises:
        _TooManyFieldsError: the list has `MAX_FIELDS` items.
    """

    def __init__(self, out: list[FieldSpan], cls: type[Message], prefix: str) -> None:
        self._out = out
        self._cls = cls
        self._prefix = prefix

    def __call__(self, path: str, start: int, stop: int, value: Any) -> None:
        if len(self._out) >= MAX_FIELDS:
            raise _TooManyFieldsError
        self._out.append(FieldSpan(start, stop, self._prefix + path, value, self._cls, path))


def _collect(parts: Sequence[tuple[type[Message], int, str]], raw: bytes) -> tuple[list[FieldSpan], str]:
    """Decode header and body of a frame; return their values, and why decoding ended early (empty if it did not).

    ``parts``: class, version, and prefix of the paths of each message. ``raw``: the frame with its size. The owner of
    a span is the class of its message.
    """
    out = [FieldSpan(0, _SIZE_BYTES, "size", int.from_bytes(raw[:_SIZE_BYTES], "big"), FrameFields, "size")]
    position = _SIZE_BYTES
    try:
        for cls, version, prefix in parts:
            _, position = interpreter.decode(cls, version, memoryview(raw), position, _ValueCollector(out, cls, prefix))
    except _TooManyFieldsError:
        return out, TOO_MANY_FIELDS
    except WireError as error:
        return out, str(error)
    if position < len(raw):
        out.append(FieldSpan(position, len(raw), "left over", "", FrameFields, "trailing_bytes"))
    return out, ""


def request_fields(key: ApiKey, version: int, raw: bytes) -> Job[FrameFieldList]:
    """Return the fields of a request frame as a job; ``raw`` and the fields include the size and the header."""
    header = (RequestHeader, request_header_version(key, version), "header.")
    return _describe_messages([header, (request_class(key), version, "")], raw)


def response_fields(key: ApiKey, version: int, raw: bytes) -> Job[FrameFieldList]:
    """Return the fields of a response frame as a job; ``raw`` and the fields include the size and the header."""
    header = (ResponseHeader, response_header_version(key, version), "header.")
    return _describe_messages([header, (response_class(key), version, "")], raw)


def _describe_messages(parts: Sequence[tuple[type[Message], int, str]], raw: bytes) -> Job[FrameFieldList]:
    spans, problem = _collect(parts, raw)
    yield None
    listed = yield from describe_spans(part for span in spans for part in _split_records(span, raw))
    return listed._replace(problem=problem or listed.problem)


def describe_spans(spans: Iterable[tuple[FieldSpan, bool]]) -> Job[FrameFieldList]:
    """Return the fields of spans with values as texts, at most `MAX_FIELDS`, as a job.

    ``spans``: each with True if its content must be hidden. A WireError of the iteration ends the list; it is returned
    as the problem.
    """
    out: list[FrameField] = []
    names: dict[str, Any] = {}
    try:
        for span, is_hidden in spans:
            if len(out) == MAX_FIELDS:
                return FrameFieldList(out, TOO_MANY_FIELDS)
            out.append(_describe_field(len(out), span, names, is_hidden=is_hidden))
            yield None
    except WireError as error:
        return FrameFieldList(out, str(error))
    return FrameFieldList(out, "")


def _split_records(span: FieldSpan, raw: bytes) -> Iterator[tuple[FieldSpan, bool]]:
    """Yield a span, and whether its content is hidden.

    Record data becomes its length, the header fields of its batches, and the fields of their records; keys, values and
    compressed records are hidden.
    """
    if not isinstance(span.value, memoryview):
        yield span, False
        return
    begin = span.stop - len(span.value)
    yield span._replace(stop=begin, value=f"{len(span.value):,} bytes of batches"), False
    position = begin
    view = memoryview(raw)[: span.stop]
    try:
        for part in batch_spans(view, begin, f"{span.path}.", hides_records=True):
            position = part.start
            yield from _record_parts(part, view)
            position = part.stop
    except WireError as error:
        yield FieldSpan(position, span.stop, f"{span.path}.records", str(error), FrameFields, "records"), True


def _record_parts(part: FieldSpan, view: memoryview) -> Iterator[tuple[FieldSpan, bool]]:
    """Yield a span, and whether its content is hidden; for the records of a batch the spans of their fields.

    Compressed records remain one span, which is hidden.
    """
    if part.owner is not FrameFields:
        yield part, False
        return
    header = parse_header(view, part.start - HEADER_BYTES)
    if header.attributes & _CODEC_BITS:
        yield part, True
        return
    prefix = part.path.removesuffix("records")
    for field in record_field_spans(view, part.start, part.stop, header.records_count, prefix):
        yield field, field.field in CONTENT_FIELDS


def _describe_field(number: int, span: FieldSpan, names: dict[str, Any], *, is_hidden: bool) -> FrameField:
    """Return a field as texts, with the number ``number`` on the page.

    ``names``: values of the fields ``name`` so far, by the path of their struct; the value of such a field is added.
    The ``value`` beside a name of a secret setting is hidden, as are secret fields, and all with ``is_hidden``.
    """
    owner, field = span.owner, span.field
    if owner is not None and issubclass(owner, Message):
        owner, field = resolve_path(owner, field)
        owner = FrameFields if field == "tags" else owner
    parent, _, last = span.path.rpartition(".")
    if last == "name":
        names[parent] = span.value
    hides_value = field in SECRET_FIELDS or (last == "value" and _is_secret_setting(names.get(parent)))
    explanation = "" if owner is None else _explain(owner).get(field, "")
    hidden_bytes = span.stop - span.start if is_hidden else _content_bytes(span.value) if hides_value else 0
    hidden_from = max(span.stop - hidden_bytes, span.start)
    value = (
        f"({hidden_bytes:,} bytes)" if hidden_bytes and owner is not FrameFields else _format_value(last, span.value)
    )
    return FrameField(number, span.start, span.stop, span.path, value, explanation, hidden_from)


def _explain(owner: Any) -> dict[str, str]:
    return explain(owner).fields


def _content_bytes(value: Any) -> int:
    """Return the number of bytes of a string or byte string, without the length before it; 0 for None."""
    return len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0 if value is None else len(value)


def _is_secret_setting(name: Any) -> bool:
    return isinstance(name, str) and is_secret(name)


def _format_value(name: str, value: Any) -> str:
    """Return a value as a text of at most 200 characters; ``name``: its field, for the names of errors and APIs."""
    if name == "error_code" and value in tuple(ErrorCode):
        return f"{value} ({ErrorCode(value).name})"
    if name == "api_key" and value in tuple(ApiKey):
        return f"{value} ({ApiKey(value).api_name})"
    text = value.hex(" ") if isinstance(value, bytes) else "null" if value is None else str(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


@cache
def _may_hide(cls: type[Message]) -> bool:
    """Return True if a message has records, settings, or fields with credentials."""
    return any(
        spec.kind == "records"
        or spec.name in SECRET_FIELDS
        or spec.name == "configs"
        or (spec.struct is not None and _may_hide(spec.struct))
        for spec in fields_of(cls)
    )


def visible_request(key: ApiKey, raw: bytes, fields: FrameFieldList) -> bytes:
    """Return a request frame with zeros for hidden bytes and, if it may have any, for bytes of no decoded field."""
    return _hide(request_class(key), raw, fields)


def visible_response(key: ApiKey, raw: bytes, fields: FrameFieldList) -> bytes:
    """Return a response frame with zeros for hidden bytes and, if it may have any, for bytes of no decoded field."""
    return _hide(response_class(key), raw, fields)


def _hide(cls: type[Message], raw: bytes, fields: FrameFieldList) -> bytes:
    """Return a frame of the same size with zeros for hidden bytes and for bytes that belong to no decoded field.

    A message that cannot have records, settings or credentials is returned unchanged.
    """
    if not _may_hide(cls):
        return raw
    out = bytearray(len(raw))
    for field in fields.fields:
        out[field.start : field.hidden_from] = raw[field.start : field.hidden_from]
    return bytes(out)


def build_hex_dump(raw: bytes, fields: Sequence[FrameField]) -> Job[list[HexRow]]:
    """Return a hex dump of at most `MAX_HEX_BYTES` bytes, each row split by fields, as a job.

    Bytes of hidden fields, and those of no field, are shown as two asterisks.
    """
    rows: list[HexRow] = []
    size = min(len(raw), MAX_HEX_BYTES)
    ordered = iter(sorted(fields, key=lambda field: field.start))
    field = next(ordered, None)
    for position in range(0, size, BYTES_PER_ROW):
        parts: list[HexPart] = []
        at, end = position, min(position + BYTES_PER_ROW, size)
        while at < end:
            while field is not None and field.stop <= at:
                field = next(ordered, None)
            number, stop, is_hidden = -1, end, True
            if field is not None and field.start > at:
                stop = min(field.start, end)
            elif field is not None:
                is_hidden = at >= field.hidden_from
                number, stop = field.number, min(field.stop if is_hidden else field.hidden_from, end)
            text = " ".join(["**"] * (stop - at)) if is_hidden else raw[at:stop].hex(" ")
            parts.append(HexPart(number, text))
            at = stop
        rows.append(HexRow(position, parts))
        yield None
    return rows
