"""SaslAuthenticate (36), v0-2, where no login is under way.

Behaviour: ILLEGAL_SASL_STATE. Where a login is wanted the gate (`broker.auth.gate`) takes it.

Source: ``KafkaApis.handleSaslAuthenticateRequest`` (apache/kafka 4.3.1).

From KIP-152.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_TEXT = "SaslAuthenticate request received after successful authentication"


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> HandlerResult:
    """Not here, not now."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _TEXT)
