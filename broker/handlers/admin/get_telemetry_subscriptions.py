"""GetTelemetrySubscriptions (71), v0: the metrics that a client pushes, and the interval.

Behaviour: a client without an id is given one. Asking again before its interval is over is THROTTLING_QUOTA_EXCEEDED,
unless the subscriptions have changed or its push was refused for them. It needs no authorization.

Deviation: ``client_source_port`` in a subscription's patterns matches no client.

Source: ``ClientMetricsManager.processGetTelemetrySubscriptionRequest`` (apache/kafka 4.3.1).

From KIP-714.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.record_batch.compression import CompressionType

ACCEPTED_COMPRESSION = [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY]
"""As Kafka prefers them."""
_MAX_CHARS = 255


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> HandlerResult:
    """Return the response with the client's subscription."""
    try:
        instance = context.services.client_metrics.get_subscription(
            request.client_instance_id, client_attributes(context), context.peer
        )
    except ProtocolError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
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
    """Return a client's attributes for the patterns of subscriptions; kept as long as the client is known."""
    peer = context.peer
    return {
        "client_id": context.client_id[:_MAX_CHARS],
        "client_software_name": peer.software_name[:_MAX_CHARS],
        "client_software_version": peer.software_version[:_MAX_CHARS],
        "client_source_address": peer.host,
    }
