"""SaslAuthenticate (36), v0-2, on a connection that is already authenticated or needs no SASL authentication.

Behaviour: ILLEGAL_SASL_STATE. During authentication `broker.security.authn.sasl_authenticator` handles the request.

Source: ``KafkaApis.handleSaslAuthenticateRequest`` (apache/kafka 4.3.1).
From KIP-152.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_TEXT = "SaslAuthenticate request received after successful authentication"


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> HandlerResult:
    """Return ILLEGAL_SASL_STATE, as no SASL authentication is in progress."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _TEXT)
