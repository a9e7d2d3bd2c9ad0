"""Requests that the active controller handles, as listed in the API table of the controller listener.

The response is sent once the changes are committed. An inactive controller returns NOT_CONTROLLER in the API's error
fields, with the id of the active controller in the message.

Source: ``ControllerApis.scala``, ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.requests.error_responses import build_error_response
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError


def handle(context: RequestContext, request: Message) -> ResponseJob:
    """Submit the request to the controller in this process and return its response once the changes are committed.

    An error of the controller, such as NOT_CONTROLLER, is the error response of the API.
    """
    return submit_to_controller(context, request, request)


def submit_to_controller(context: RequestContext, request: Message, event: Any) -> ResponseJob:
    """Submit an event to the controller in this process, as a job; return its result, or the API's error response.

    The changes count against the client's controller mutation quota (KIP-599), which sets the throttle time of the
    response. A `ProtocolError` of the controller becomes the error response.

    Args:
        context: Context of the request.
        request: Request of the client, from which an error response is built.
        event: The request, or an object with the request and further values such as the principal.
    """
    controller, changes = context.services.controller, context.mutation_quota()
    try:
        if changes is None:
            answer: Message = yield controller.submit(event, context.version)
        else:
            answer = yield controller.submit(event, context.version, changes.record)
            changes.set_throttle_time(answer)
    except ProtocolError as error:
        text = error.message
        if error.code is ErrorCode.NOT_CONTROLLER:
            text = not_controller_message(controller.leader_id)
        return (yield from build_error_response(context, request, error.code, text))
    return answer


def not_controller_message(leader_id: int) -> str:
    """Return Kafka's message for NOT_CONTROLLER; ``leader_id`` is -1 if unknown (``ControllerExceptions.java``)."""
    if leader_id < 0:
        return "No controller appears to be active."
    return f"The active controller appears to be node {leader_id}."
