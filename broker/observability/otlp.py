"""Parser of pushed client metrics: decodes the OpenTelemetry protobuf fields that Kafka clients use.

It decodes the bytes field by field, yields often, and skips unknown fields; a length beyond the data raises
`WireError`. Gauges and sums are decoded, histograms are skipped.

Source: ``opentelemetry/proto/metrics/v1/metrics.proto``; ``SinglePointMetric.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

from ottla.broker.config.limits import MAX_METRIC_FIELDS
from ottla.wire.errors import WireError

MAX_NAME_CHARS = 200
"""Maximum length of a metric name, label name or label value; longer ones are cut off."""
MAX_LABELS = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
_DELTA = 1
Labels = tuple[tuple[str, str], ...]


class OtlpSample(NamedTuple):
    """Value of a counter or gauge in a push, with its name and labels, cumulative or as a delta."""

    name: str
    labels: Labels
    value: float
    is_delta: bool
    """True for a delta since the previous value, False for a cumulative value."""
    is_counter: bool


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("a number in the metrics does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """Yield number, wire type and value of each field of an encoded protobuf message; groups are not supported.

    Raises:
        WireError: The message is malformed.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"a field of kind {kind} in the metrics")
        if size > len(data) - at:
            raise WireError("a field in the metrics is longer than the message")
        yield tag >> 3, kind, data[at : at + size]
        at += size


def _parts(data: memoryview, wanted: int) -> Iterator[memoryview | None]:
    """Yield the embedded messages of field number ``wanted``; None for each other field, so that callers can yield."""
    for number, _, value in _fields(data):
        yield value if number == wanted and isinstance(value, memoryview) else None


def _bounded_fields(data: memoryview, left: Iterator[int]) -> Iterator[tuple[int, int, memoryview | int]]:
    """Yield the fields of a small message, at most as many as ``left`` has items, which embedded messages share.

    Raises:
        WireError: The message has more fields.
    """
    for found in _fields(data):
        if next(left, None) is None:
            raise WireError(f"a value in the metrics has more than {MAX_METRIC_FIELDS} fields")
        yield found


def _text(data: memoryview) -> str:
    return bytes(data[: 4 * MAX_NAME_CHARS]).decode("utf-8", "replace")[:MAX_NAME_CHARS]


def _any_value(data: memoryview, left: Iterator[int]) -> str:
    for number, _, value in _bounded_fields(data, left):
        if number == 1 and isinstance(value, memoryview):
            return _text(value)
        if number in (2, 3) and isinstance(value, int):
            return ("false", "true")[value & 1] if number == 2 else str(value)
        if number == 4 and isinstance(value, memoryview) and len(value) == 8:
            return repr(_DOUBLE.unpack(value)[0])
    return ""


def _label(data: memoryview, left: Iterator[int]) -> tuple[str, str]:
    key = value = ""
    for number, _, part in _bounded_fields(data, left):
        if isinstance(part, memoryview):
            if number == 1:
                key = _NO_NAME.sub("_", _text(part))
            elif number == 2:
                value = _any_value(part, left)
    if key[:1].isdigit() or key.startswith("__"):  # reserved by Prometheus: a label __name__ breaks the whole page
        key = f"_{key.lstrip('_')}"
    return key, value


def _point(data: memoryview) -> tuple[Labels, float | None]:
    labels: dict[str, str] = {}
    value: float | None = None
    left = iter(range(MAX_METRIC_FIELDS))
    for number, _, part in _bounded_fields(data, left):
        if not isinstance(part, memoryview):
            continue
        if number == 7 and len(labels) < MAX_LABELS:
            key, text = _label(part, left)
            if key:
                labels[key] = text
        elif number in (4, 6) and len(part) == 8:
            value = float((_DOUBLE if number == 4 else _LONG).unpack(part)[0])
    return tuple(sorted(labels.items())), value


def _metric(data: memoryview) -> Generator[OtlpSample | None, None, None]:
    name = ""
    for number, _, body in _fields(data):
        if not isinstance(body, memoryview):
            yield None
            continue
        if number == 1:
            name = _NO_NAME.sub("_", _text(body))
        elif number in (5, 7):
            temporality = monotonic = 0
            if number == 7:
                for field, kind, value in _fields(body):
                    if kind == _VARINT and isinstance(value, int):
                        temporality = value if field == 2 else temporality
                        monotonic = value if field == 3 else monotonic
                    yield None
            is_delta, is_counter = temporality == _DELTA, number == 7 and bool(monotonic)
            for point in _parts(body, 1):
                labels, found = ((), None) if point is None else _point(point)
                yield None if found is None or not name else OtlpSample(name, labels, found, is_delta, is_counter)
        yield None


def parse_samples(data: bytes) -> Generator[OtlpSample | None, None, None]:
    """Yield the samples of gauges and sums in an encoded ``MetricsData``, and None now and then for a caller to yield.

    Left out are histograms, points without a number, and metrics whose name comes after their data. A sample has at
    most `MAX_LABELS` labels.

    Raises:
        WireError: The message is malformed.
    """
    nothing = memoryview(b"")
    for resource in _parts(memoryview(data), 1):
        for scope in _parts(resource or nothing, 2):
            for metric in _parts(scope or nothing, 2):
                yield None
                yield from _metric(metric or nothing)
            yield None
        yield None
