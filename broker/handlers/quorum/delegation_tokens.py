"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), as a controller answers them.

`ottla.broker.handlers.delegation_tokens` is the broker's side. What a broker passes on may come in plain text: the
client's own connection was looked at there.

Source: ``ControllerApis.handleCreateDelegationTokenRequest`` and its neighbours (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.handlers.delegation_tokens import error_response
from ottla.broker.handlers.quorum import decided
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.controller.delegation_tokens import TokenRequestContext
from ottla.wire.schema import Message


def handle(context: RequestContext, request: Message) -> HandlerResult:
    """Ask the controller in this process, as who sent it."""
    asked = TokenRequestContext(request, context.peer.principal, context.now_ms)
    return error_response(context, request) or decided.submit_to_controller(context, request, asked)
