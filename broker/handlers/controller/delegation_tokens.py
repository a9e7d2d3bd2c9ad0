"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), on the controller listener.

`ottla.broker.handlers.security.delegation_tokens` handles these APIs on a broker. A request that a broker forwards may
arrive over PLAINTEXT: the broker has checked the security protocol of the client's own connection.

Source: ``ControllerApis.handleCreateDelegationTokenRequest`` and its neighbours (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.controller import controller_requests
from ottla.broker.handlers.security.delegation_tokens import error_response
from ottla.controller.control.delegation_tokens import TokenRequestContext
from ottla.wire.codec.schema import Message


def handle(context: RequestContext, request: Message) -> HandlerResult:
    """Return an error response if the client may not send the request; otherwise submit it to the controller.

    The controller in this process gets the client's principal with it.
    """
    token_request = TokenRequestContext(request, context.peer.principal, context.now_ms)
    return error_response(context, request) or controller_requests.submit_to_controller(context, request, token_request)
