"""Submission of JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat to the group coordinator."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.requests.peer import wait_while_connected
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError

ErrorResponse = Callable[[ErrorCode], Message]


def java_uuid(raw: bytes) -> str:
    """Format 16 bytes as ``java.util.UUID`` does: 8-4-4-4-12 hexadecimal digits."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def kafka_uuid(raw: bytes) -> str:
    """Format 16 bytes as Kafka's ``Uuid`` does: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def submit_group_request(
    context: RequestContext,
    request: Any,
    refuse: ErrorResponse | None = None,
    text_of: Callable[[bytes], str] = java_uuid,
    sees: Callable[[str], bool] | None = None,
) -> HandlerResult:
    """Submit a membership request to the group coordinator; return the response, or a job that waits for it.

    Args:
        context: Context of the request.
        request: Request with a group id.
        refuse: Returns the API's response for an error code; None: a `ProtocolError` is raised.
        text_of: Formats the random UUID of a new member id.
        sees: Returns whether the client may describe a topic; None if there is no authorizer.

    Raises:
        ProtocolError: The group id is invalid, or the coordinator rejects the request, and ``refuse`` is None.
    """
    if not request.group_id:
        return _response(ProtocolError(ErrorCode.INVALID_GROUP_ID), refuse)
    services = context.services
    fresh = text_of(services.env.uuid()) if not getattr(request, "member_id", "") else ""
    pending = services.groups.submit(
        request.group_id,
        lambda own: GroupRequest(own, request, context.version, context.client_id, context.peer.host, fresh, sees),
    )
    if pending.answer is not None:
        return _response(pending.answer, refuse)
    return _wait_for_response(context, request.group_id, pending, refuse)


def _response(answer: Any, refuse: ErrorResponse | None) -> Message:
    if isinstance(answer, ProtocolError):
        if refuse is None:
            raise ProtocolError(answer.code)
        return refuse(answer.code)
    assert isinstance(answer, Message)
    return answer


def _wait_for_response(
    context: RequestContext, group_id: str, pending: PendingBrokerRequest, refuse: ErrorResponse | None
) -> ResponseJob:
    """Wait for the coordinator's response, as a job; notify the group coordinator if the client disconnects before.

    ``refuse``: returns the response for an error code; None: the error is raised.

    Raises:
        PeerDisconnectedError: The client has disconnected. ProtocolError: The coordinator rejects the request.
    """
    forget = context.peer.on_close(partial(context.services.groups.on_disconnect, group_id, pending))
    try:
        return _response((yield wait_while_connected(context.peer, pending.wait())), refuse)
    finally:
        forget()
