"""PushTelemetry (API 72): send metrics of a client to the broker (KIP-714)."""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
)


class PushTelemetryRequest(Message):
    """Metrics of a client, sent every `push_interval_ms` of its GetTelemetrySubscriptions response."""

    SPEC: ClassVar[MessageSpec] = request(72, "0", "0+", "broker")
    """Flow: A client sends its metrics every `push_interval_ms`, in the OTLP format, to the same broker if possible.
    The last push before it closes has `terminating` set.
    """
    client_instance_id: Uuid = ZERO_UUID
    """Id of the client, from GetTelemetrySubscriptions. Zero is rejected with INVALID_REQUEST."""
    subscription_id: Int32 = 0
    """Checksum of the subscription, from GetTelemetrySubscriptions. Another one than the current one is rejected with
    UNKNOWN_SUBSCRIPTION_ID, and the client requests its subscription again.
    """
    terminating: Bool = False
    """True for the last push of a client that is being closed: it may come before the push interval is over. A later
    push is rejected with INVALID_REQUEST.
    """
    compression_type: Int8 = 0
    """Codec of the metrics: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Others are rejected with
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    metrics: Bytes = b""
    """Metrics as a `MetricsData` message of OpenTelemetry in protobuf; empty if the client has none to report. Above
    `telemetry.max.bytes` they are rejected with TELEMETRY_TOO_LARGE; if they cannot be decoded, with INVALID_RECORD.
    """


class PushTelemetryResponse(Message):
    """Error code of PushTelemetry; 0 if the broker has accepted the metrics."""

    SPEC: ClassVar[MessageSpec] = response(72, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or UNKNOWN_SUBSCRIPTION_ID (request the subscription again), THROTTLING_QUOTA_EXCEEDED (the push interval is
    not over), TELEMETRY_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, INVALID_REQUEST.
    """
