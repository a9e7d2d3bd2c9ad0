"""SaslHandshake (17), v0-1, on a listener without SASL, or on an authenticated connection too early (KIP-368).

Behaviour: ILLEGAL_SASL_STATE, without mechanisms. During authentication `broker.security.authn.sasl_authenticator`
handles the request.

Source: ``KafkaApis.handleSaslHandshakeRequest`` (apache/kafka 4.3.1).
From KIP-43.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: RequestContext, request: SaslHandshakeRequest) -> HandlerResult:
    """Return ILLEGAL_SASL_STATE without mechanisms, as no SASL authentication is in progress."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
