"""JSON form of records: output of ``ottla consume -o json``, input of ``ottla produce -i json``.

The console exports and imports it, too. Bytes that are not UTF-8 are base64 in the fields ``key_base64``,
``value_base64`` and ``headers_base64``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any, NamedTuple

from ottla.wire.record_batch.records import Record

_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1
FIELDS = {
    "topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers",
    "headers_base64",
}  # fmt: skip
"""Field names of the JSON form. ``topic`` and ``offset`` are ignored in the input."""


class InvalidRecord(Exception):
    """Raised if a line is not the JSON form of a record."""


class ParsedRecord(NamedTuple):
    """Record of the input, to be produced.

    Attributes:
        key: None for no key.
        value: None for a null value.
        headers: names and values.
        partition: None to let the producer choose.
        timestamp_ms: milliseconds since 1970; None for the time at which it is produced.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def _as_text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _put(row: dict[str, Any], name: str, raw: bytes | None) -> None:
    """Set ``row[name]`` to bytes as text, None to null; or ``row["{name}_base64"]`` if the bytes are not UTF-8."""
    try:
        row[name] = _as_text(raw)
    except UnicodeDecodeError:
        row[f"{name}_base64"] = b64encode(raw or b"").decode()


def record_to_json(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """Return a record as a JSON object with fields of `FIELDS`.

    A header name that occurs several times has a list of values.
    """
    row: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    _put(row, "key", record.key)
    _put(row, "value", record.value)
    grouped: dict[str, list[bytes | None]] = {}
    for name, raw in record.headers:
        grouped.setdefault(name, []).append(raw)
    row["headers"], binary = dict[str, Any](), dict[str, Any]()
    for name, values in grouped.items():
        try:
            texts = [_as_text(raw) for raw in values]
            row["headers"][name] = texts[0] if len(texts) == 1 else texts
        except UnicodeDecodeError:
            encoded = [None if raw is None else b64encode(raw).decode() for raw in values]
            binary[name] = encoded[0] if len(encoded) == 1 else encoded
    if binary:
        row["headers_base64"] = binary
    return row


def _as_bytes(value: Any) -> bytes | None:
    """Return a JSON value as bytes: text as UTF-8, null as None, any other value as compact JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _decoded(value: Any, name: str) -> bytes | None:
    if value is None:
        return None
    try:
        return b64decode(value, validate=True)
    except (Base64Error, TypeError, ValueError):
        raise InvalidRecord(f"{name}: base64 expected") from None


def _field(row: dict[str, Any], name: str) -> bytes | None:
    encoded = f"{name}_base64"
    if name in row and encoded in row:
        raise InvalidRecord(f"{name} and {encoded} exclude each other")
    return _decoded(row[encoded], encoded) if encoded in row else _as_bytes(row.get(name))


def _number(row: dict[str, Any], name: str, limit: int) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise InvalidRecord(f"{name}: whole number expected, 0 to {limit}")
    return value


def _headers(row: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    out: list[tuple[str, bytes | None]] = []
    for name in ("headers", "headers_base64"):
        given = row.get(name) or {}
        if not isinstance(given, dict):
            raise InvalidRecord(f"{name}: object expected")
        for key, values in given.items():
            _as_bytes(key)  # raises for half a surrogate pair
            for value in values if isinstance(values, list) else [values]:
                out.append((key, _as_bytes(value) if name == "headers" else _decoded(value, name)))
    return tuple(out)


def record_from_json(line: bytes) -> ParsedRecord:
    """Return the record that a line of JSON describes, to be produced.

    Raises:
        InvalidRecord: the line is not an object, a field is unknown or has an invalid value, or key or value is present
            as base64, too; headers may be both.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidRecord("JSON object expected") from None
    if not isinstance(row, dict):
        raise InvalidRecord("JSON object expected")
    unknown = sorted(row.keys() - FIELDS)
    if unknown:
        raise InvalidRecord(f"unknown field: {unknown[0]} (known: {', '.join(sorted(FIELDS))})")
    try:
        return ParsedRecord(
            _field(row, "key"),
            _field(row, "value"),
            _headers(row),
            _number(row, "partition", _MAX_INT32),
            _number(row, "timestamp_ms", _MAX_INT64),
        )
    except UnicodeEncodeError:
        raise InvalidRecord("text with half a surrogate pair cannot be encoded as UTF-8") from None
