"""SaslHandshake (17), v0-1, where no login is under way: on a listener that wants none, or too soon after the last one.

Behaviour: ILLEGAL_SASL_STATE, without mechanisms. Where a login is wanted the gate (`broker.auth.gate`) takes it.

Source: ``KafkaApis.handleSaslHandshakeRequest`` (apache/kafka 4.3.1).

From KIP-43.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: RequestContext, request: SaslHandshakeRequest) -> HandlerResult:
    """Not here, not now."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
