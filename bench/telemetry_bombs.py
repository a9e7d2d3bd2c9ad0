"""Malicious PushTelemetry requests (KIP-714), each of a size that a number ``n`` determines, for `bench.hostile`."""

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
    """Return a request that pushes ``metrics``, compressed before by ``codec``; client ``ident`` has no subscription.

    An unknown client may send it without an earlier GetTelemetrySubscriptions.
    """
    return PushTelemetryRequest(ident, merge_subscriptions([]).subscription_id(ident), False, codec, metrics)


def _new_client_id(n: int) -> bytes:
    """Return the id of a client that differs for each size ``n``, so that no request is repeated by a client."""
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
    """Return a push of ``100 * n`` compressed zero bytes."""
    return push_request(compress(codec, bytes(100 * n)), codec, _new_client_id(n))


def values(n: int) -> PushTelemetryRequest:
    """Return an uncompressed push of one metric with ``n`` values, or as many as a push may have."""
    points = _as_many_as_fit(point(number, k=str(number)) for number in range(n))
    return push_request(message(metric("m", *points)), CompressionType.NONE, _new_client_id(n))


def names(n: int) -> PushTelemetryRequest:
    """Return a compressed push of ``n`` metrics with one value each, or as many as a push may have."""
    made = _as_many_as_fit(metric(f"metric-{number}", point(number)) for number in range(n))
    return push_request(compress(CompressionType.ZSTD, message(*made)), CompressionType.ZSTD, _new_client_id(n))


def empty_metrics(n: int) -> PushTelemetryRequest:
    """Return a compressed push of ``n`` metrics of two bytes without name and value, or as many as a push may have."""
    return push_request(
        compress(CompressionType.ZSTD, message(*[NOTHING] * min(n, MAX_PAYLOAD_BYTES // len(NOTHING)))),
        CompressionType.ZSTD,
        _new_client_id(n),
    )


def overlong_field(n: int) -> PushTelemetryRequest:
    """Return a compressed push of the metrics of `empty_metrics`, and a field longer than the available bytes."""
    whole = message(*[NOTHING] * min(n, MAX_PAYLOAD_BYTES // len(NOTHING)))
    return push_request(
        compress(CompressionType.GZIP, whole + b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f"),
        CompressionType.GZIP,
        _new_client_id(n),
    )


def repeated_push(n: int) -> PushTelemetryRequest:
    """Return a push of ``100 * n`` compressed zero bytes by the client `SAME`, which has just pushed."""
    return push_request(compress(CompressionType.GZIP, bytes(100 * n)), CompressionType.GZIP, SAME)


BOMBS = {codec.name: partial(zeros, codec) for codec in CompressionType if codec is not CompressionType.NONE}
