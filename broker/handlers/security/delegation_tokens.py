"""CreateDelegationToken (38), v1-3; RenewDelegationToken (39), v1-2; ExpireDelegationToken (40), v1-2, on a broker.

Behaviour (S-333, S-334): a client authenticated by a delegation token, over PLAINTEXT or over TLS without a certificate
is rejected; a token for another owner requires CREATE_TOKENS on that user; renewers must have the principal type User.
Valid requests are forwarded to the controller, which checks them again. Deviation: a token has at most `MAX_RENEWERS`
renewers, with `MAX_RENEWER_CHARS` characters in all their names; in Kafka its record must fit into a batch.
Version notes: from v3 a token may have another owner, and the response has its requester.

Source: ``handleCreateTokenRequest`` and its neighbours, ``allowTokenRequests`` in ``KafkaApis.scala`` (apache/kafka
4.3.1).
From KIP-48, KIP-373.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.config.limits import MAX_RENEWER_CHARS, MAX_RENEWERS
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin import forward_to_controller
from ottla.broker.requests.error_responses import build_error_response
from ottla.broker.requests.peer import ANONYMOUS
from ottla.controller.control.delegation_tokens import USER, create_response, owner_principal
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import run_to_end
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest

NO_TIME_MS = -1


def handle(context: RequestContext, request: Message) -> HandlerResult:
    """Forward a request to create, renew or expire a token to the controller if it is allowed and valid.

    Otherwise return its error response: see `error_response`; also if a renewer has another principal type than User.
    """
    refused = error_response(context, request)
    if refused is not None:
        return refused
    if isinstance(request, CreateDelegationTokenRequest) and any(x.principal_type != USER for x in request.renewers):
        return _create_error_response(context, request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    return forward_to_controller.handle(context, request)


def may_use_tokens(context: RequestContext) -> bool:
    """Return whether the connection's authentication allows requests about delegation tokens.

    It does not if the client used a delegation token itself or is anonymous; the latter is not checked for a forwarded
    request, as the broker has checked it.
    """
    peer = context.peer
    if peer.token_authenticated:
        return False
    protocol = context.services.config.security_protocol(peer.listener)
    is_anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and peer.principal == ANONYMOUS)
    return peer.is_forwarded or not is_anonymous


def error_response(context: RequestContext, request: Any) -> Message | None:
    """Return the error response of a request that is not allowed or invalid, on a broker or a controller; else None."""
    if not isinstance(request, CreateDelegationTokenRequest):
        if may_use_tokens(context):
            return None
        answer: Any = run_to_end(build_error_response(context, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
        answer.expiry_timestamp_ms = NO_TIME_MS
        return answer  # type: ignore[no-any-return]
    if request.owner_principal_name and request.owner_principal_type is None:
        return run_to_end(build_error_response(context, request, ErrorCode.UNKNOWN_SERVER_ERROR))
    if not may_use_tokens(context):
        return _create_error_response(context, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    owner = owner_principal(request, context.peer.principal)
    if owner != context.peer.principal and not context.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        return _create_error_response(context, request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if len(request.renewers) > MAX_RENEWERS or sum(len(x.principal_name) for x in request.renewers) > MAX_RENEWER_CHARS:
        return run_to_end(build_error_response(context, request, ErrorCode.RECORD_LIST_TOO_LARGE))
    return None


def _create_error_response(context: RequestContext, request: CreateDelegationTokenRequest, code: ErrorCode) -> Message:
    principal = context.peer.principal
    answer = create_response(owner_principal(request, principal), principal, context.version)
    answer.error_code = code
    answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = NO_TIME_MS
    return answer
