"""PushTelemetry (72), v0: metrics that a client pushes according to its subscription.

Behaviour: the request must have the current subscription id and a known compression type, must not come before the push
interval has passed (unless the client has requested its subscription since, or it is the last push, ``terminating``),
and must not exceed ``telemetry.max.bytes``, compressed or decompressed. Metrics that cannot be decompressed or decoded
are INVALID_RECORD. No authorization is required. If the node has a metrics endpoint, the metrics are exported there.

Source: ``ClientMetricsManager.processPushTelemetryRequest`` (apache/kafka 4.3.1).
From KIP-714.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.admin.get_telemetry_subscriptions import client_attributes
from ottla.broker.requests.error_responses import with_error_response
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@with_error_response
def handle(context: RequestContext, request: PushTelemetryRequest) -> ResponseJob:
    """Validate the metrics that a client pushes, store them for the metrics endpoint, if any, and return the response.

    The errors are those of `ClientMetricsManager.push`, for example for a wrong subscription id or too large metrics;
    they are the response's error code.
    """
    services, attributes = context.services, client_attributes(context)
    yield from services.client_metrics.push(
        request, attributes, context.peer, services.config.number("telemetry.max.bytes")
    )
    return PushTelemetryResponse()
