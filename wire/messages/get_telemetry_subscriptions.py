"""GetTelemetrySubscriptions (API 71): metrics that a client pushes, and how often (KIP-714)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
    wire_field,
)


class GetTelemetrySubscriptionsRequest(Message):
    """Request of a client for the metrics that it is to push with PushTelemetry."""

    SPEC: ClassVar[MessageSpec] = request(71, "0", "0+", "broker")
    """Flow: A client sends it to any broker after it has connected; first with a zero instance id, for which the broker
    returns a new one. The response names the metrics to push and the interval. PushTelemetry follows.
    """
    client_instance_id: Uuid = ZERO_UUID
    """Random id of the client; zero in its first request."""


class GetTelemetrySubscriptionsResponse(Message):
    """Metrics of all client metrics resources that match, their shortest interval, and limits."""

    SPEC: ClassVar[MessageSpec] = response(71, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or THROTTLING_QUOTA_EXCEEDED for a request before the push interval is over, unless the subscription has
    changed, or the last push was rejected for its subscription id or compression type.
    """
    client_instance_id: Uuid = ZERO_UUID
    """Id from the request, or a new one if that was zero. The client keeps it until it is closed."""
    subscription_id: Int32 = 0
    """Checksum of the subscription. PushTelemetry with another one is rejected with UNKNOWN_SUBSCRIPTION_ID, and the
    client requests its subscription again.
    """
    accepted_compression_types: Annotated[list[int], wire_field("[]int8")] = field(default_factory=list)
    """Codecs that the broker accepts, the preferred one first: 4 zstd, 3 lz4, 1 gzip, 2 snappy. None (0) is always
    accepted.
    """
    push_interval_ms: Int32 = 0
    """Time in ms between two pushes: the shortest `interval.ms` of the matching subscriptions, at most 300,000."""
    telemetry_max_bytes: Int32 = 0
    """Most bytes of metrics in a push after compression (`telemetry.max.bytes`); more is rejected with
    TELEMETRY_TOO_LARGE.
    """
    delta_temporality: Bool = False
    """True for counters as differences since the last push, false for totals. Always true."""
    requested_metrics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Prefixes of the names of requested metrics. Empty for none; a single `*` for all."""
