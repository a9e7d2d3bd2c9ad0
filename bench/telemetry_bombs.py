"""Malicious pushes of client metrics, for `bench.hostile`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ottla.broker.observability.client_metrics_subscriptions import merge_subscriptions
from ottla.broker.observability.tests.test_client_metrics import field, message, metric, point
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.record_batch.compression import CompressionType, compress

MAX_PAYLOAD_BYTES = (1 << 20) - 1000
"""Limit below ``telemetry.max.bytes``."""
SAME = bytes(range(16))
"""Client that reconnects."""
NOTHING = field(2, b"")
"""Metric without a name and a value."""


def push_request(metrics: bytes, codec: CompressionType, ident: bytes) -> PushTelemetryRequest:
    """Push as a client without a subscription; an unknown client may do so at once."""
    return PushTelemetryRequest(ident, merge_subscriptions([]).subscription_id(ident), False, codec, metrics)


def _new_client_id(n: int) -> bytes:
    """Return a new client for each size, other than that of the small request before."""
    return (1 << 64 | n).to_bytes(16, "big")


def _as_many_as_fit(parts: Iterable[bytes]) -> list[bytes]:
    out, left = [], MAX_PAYLOAD_BYTES
    for part in parts:
        left -= len(part) + len(NOTHING)
        if left < 0:
            break
        out.append(part)
    return out


def zeros(codec: CompressionType, n: int) -> PushTelemetryRequest:
    """Return a bomb: a hundred zeros for each element, compressed."""
    return push_request(compress(codec, bytes(100 * n)), codec, _new_client_id(n))


def values(n: int) -> PushTelemetryRequest:
    """Return as many values of one name as are accepted, uncompressed."""
    points = _as_many_as_fit(point(number, k=str(number)) for number in range(n))
    return push_request(message(metric("m", *points)), CompressionType.NONE, _new_client_id(n))


def names(n: int) -> PushTelemetryRequest:
    """Return as many names as are accepted, with a value each, compressed."""
    made = _as_many_as_fit(metric(f"metric-{number}", point(number)) for number in range(n))
    return push_request(compress(CompressionType.ZSTD, message(*made)), CompressionType.ZSTD, _new_client_id(n))


def empty_metrics(n: int) -> PushTelemetryRequest:
    """Return metrics without a name and a value, two bytes each, which compress to almost zero bytes."""
    return push_request(
        compress(CompressionType.ZSTD, message(*[NOTHING] * min(n, MAX_PAYLOAD_BYTES // len(NOTHING)))),
        CompressionType.ZSTD,
        _new_client_id(n),
    )


def overlong_field(n: int) -> PushTelemetryRequest:
    """Return a field with a length above the available bytes, behind many empty ones."""
    whole = message(*[NOTHING] * min(n, MAX_PAYLOAD_BYTES // len(NOTHING)))
    return push_request(
        compress(CompressionType.GZIP, whole + b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f"),
        CompressionType.GZIP,
        _new_client_id(n),
    )


def repeated_push(n: int) -> PushTelemetryRequest:
    """Return a bomb of a client that has just pushed."""
    return push_request(compress(CompressionType.GZIP, bytes(100 * n)), CompressionType.GZIP, SAME)


BOMBS = {codec.name: partial(zeros, codec) for codec in CompressionType if codec is not CompressionType.NONE}
