"""PushTelemetry (72), v0: a client's metrics.

Behaviour: the subscription must be the one it was told, the push interval over, the codec known and the size no more
than ``telemetry.max.bytes``, packed and unpacked; what cannot be unpacked or read is INVALID_RECORD. It needs no
authorization. Where the node has a metrics page they are shown there.

Source: ``ClientMetricsManager.processPushTelemetryRequest`` (apache/kafka 4.3.1).

From KIP-714.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.admin.get_telemetry_subscriptions import client_attributes
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(context: RequestContext, request: PushTelemetryRequest) -> ResponseJob:
    """Take them."""
    services, who = context.services, client_attributes(context)
    try:
        yield from services.client_metrics.push(
            request, who, context.peer, services.config.number("telemetry.max.bytes")
        )
    except ProtocolError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
