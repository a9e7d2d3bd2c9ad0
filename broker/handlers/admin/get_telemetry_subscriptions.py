"""GetTelemetrySubscriptions (71), v0: metrics that a client has to push, and the push interval.

Behaviour: a client without a client instance id is assigned one. A request before the push interval has passed is
THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed or the last push was refused with
UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE. No authorization is required.
Deviation: ``client_source_port`` in a subscription's match patterns matches no client.

Source: ``ClientMetricsManager.processGetTelemetrySubscriptionRequest`` (apache/kafka 4.3.1).
From KIP-714.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.requests.error_responses import with_error_response
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.record_batch.compression import CompressionType

ACCEPTED_COMPRESSION = [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY]
"""Compression types for pushed metrics, in Kafka's order of preference."""
_MAX_CHARS = 255


@with_error_response
def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> HandlerResult:
    """Register the client instance; return its id, subscription id, requested metrics and push interval in ms.

    Without a client instance id in the request a new one is assigned.
    """
    instance = context.services.client_metrics.get_subscription(
        request.client_instance_id, client_attributes(context), context.peer
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_COMPRESSION],
        push_interval_ms=instance.subscription.interval_ms,
        telemetry_max_bytes=context.services.config.number("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(instance.subscription.metrics),
    )


def client_attributes(context: RequestContext) -> dict[str, str | None]:
    """Return the attributes of a client that subscriptions match, by name: client id, software and source address.

    Values but the address are cut at 255 characters.
    """
    peer = context.peer
    return {
        "client_id": context.client_id[:_MAX_CHARS],
        "client_software_name": peer.software_name[:_MAX_CHARS],
        "client_software_version": peer.software_version[:_MAX_CHARS],
        "client_source_address": peer.host,
    }
