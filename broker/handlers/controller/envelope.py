"""Envelope (58), v0: a client's request forwarded by a broker, with the client's principal and address.

Behaviour: an API that is not forwardable or an invalid client address is INVALID_REQUEST; an invalid principal is
PRINCIPAL_DESERIALIZATION_FAILURE; an unsupported version of the inner request is UNSUPPORTED_VERSION, for which the
broker closes the client's connection. The inner response is embedded with its own header. If it has NOT_CONTROLLER (for
DescribeQuorum: NOT_LEADER_OR_FOLLOWER), the envelope has only NOT_CONTROLLER, and the broker retries at another
controller.

Source: ``EnvelopeUtils.scala``, ``RequestChannel.buildResponseSend`` (apache/kafka 4.3.1).
From KIP-590.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.api_spec import ApiSpec, Forwarding
from ottla.broker.dispatch.dispatcher import (
    RequestContext,
    ResponseJob,
    decode_request_job,
    load_handler,
    with_authorization,
)
from ottla.broker.requests.error_responses import contains_error
from ottla.broker.requests.peer import Peer
from ottla.env.hosts import canonical_host
from ottla.jobs.job import Job, as_job
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.framing import RequestFrame, encode_response_job, parse_request
from ottla.wire.messages.consumer_protocol import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

_PRINCIPAL_VERSION = bytes(2)
_SIZE_BYTES = 4


def handle(context: RequestContext, request: EnvelopeRequest) -> ResponseJob:
    """Decode the inner request, handle it, and return its encoded response in an EnvelopeResponse.

    An error of the envelope itself is its error code.
    """
    try:
        return (yield from _handle_inner_request(context, request))
    except ProtocolError as error:
        return EnvelopeResponse(error_code=error.code)


def _handle_inner_request(context: RequestContext, envelope: EnvelopeRequest) -> Job[EnvelopeResponse]:
    """Decode, authorize and handle the inner request with the client's principal; return the envelope's response.

    Raises:
        ProtocolError: The error code of the envelope.
    """
    peer = _peer(context, envelope)
    request, route, forwarding = _parse_inner_request(context, envelope.request_data)
    inner = replace(
        context,
        key=request.key,
        version=request.version,
        client_id=request.client_id,
        peer=peer,
        frame=request.frame,
    )
    handler = load_handler(route.endpoint(at_controller=True).handler_module)
    if context.has_authorizer:
        handler = with_authorization(handler, route, at_controller=True)
    answer = yield from as_job(handler(inner, (yield from _decode_inner_body(route, request))))
    assert isinstance(answer, Message), "a request that may be forwarded has an answer"
    if (yield from contains_error(answer, forwarding.moved_error)):
        raise ProtocolError(ErrorCode.NOT_CONTROLLER)
    chunks = yield from encode_response_job(request.key, request.version, request.correlation_id, answer)
    return EnvelopeResponse(b"".join(chunks)[_SIZE_BYTES:])


def _peer(context: RequestContext, envelope: EnvelopeRequest) -> Peer:
    """Return a new peer with the principal and the address of the client whose request is in ``envelope``.

    Raises:
        ProtocolError: PRINCIPAL_DESERIALIZATION_FAILURE; INVALID_REQUEST for an invalid address.
    """
    raw = envelope.request_principal or b""
    try:
        if raw[:2] != _PRINCIPAL_VERSION:
            raise WireError("a principal of another version")
        principal = compiler.decode_exact(DefaultPrincipalData, 0, raw[2:])
    except WireError as error:
        raise ProtocolError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    if len(envelope.client_host_address) not in (4, 16):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid client host address: its length must be 4 or 16 bytes")
    peer = Peer(canonical_host(envelope.client_host_address), context.peer.local, context.peer.listener)
    peer.principal = f"{principal.type}:{principal.name}"
    peer.token_authenticated = principal.token_authenticated
    peer.is_forwarded = True
    return peer


def _parse_inner_request(context: RequestContext, data: bytes) -> tuple[RequestFrame, ApiSpec, Forwarding]:
    """Parse the header of the inner request in ``data``; return its frame, API and forwarding rules.

    Raises:
        ProtocolError: UNSUPPORTED_VERSION, also for an unknown API or a malformed header; INVALID_REQUEST for an API
            that is not forwardable.
    """
    try:
        request = parse_request(memoryview(data))
    except WireError as error:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    route = context.apis.get(request.key)
    if route is None or route.forwarding is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{request.key.name} is not forwardable")
    if not route.min_version <= request.version <= route.max_version:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION, f"Unsupported version {request.version} of {request.key.name}"
        )
    return request, route, route.forwarding


def _decode_inner_body(spec: ApiSpec, request: RequestFrame) -> Job[Any]:
    """Decode the body of the inner request within a memory budget, as a job.

    Raises:
        ProtocolError: UNSUPPORTED_VERSION for a body that cannot be decoded.
    """
    try:
        return (yield from decode_request_job(spec, request))
    except WireError as error:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
