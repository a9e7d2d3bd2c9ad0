"""Heartbeat (12), v0-4: extend the session of a member with the classic protocol, and report a rebalance to it.

Behaviour: REBALANCE_IN_PROGRESS while members have to rejoin; no error while the coordinator still loads the group.
`broker.groups.classic` and, for consumer groups, `broker.groups.consumer.classic_protocol` have the state machines.

Source: ``GroupMetadataManager.java``, ``GroupCoordinatorService.heartbeat`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> HandlerResult:
    """Submit the Heartbeat request to the group coordinator; return its response, or a job that waits for it.

    An error is the error code of the response; while the coordinator loads the group there is none.
    """

    def refuse(code: ErrorCode) -> Message:
        return HeartbeatResponse(error_code=0 if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)

    return submit_group_request(context, request, refuse)
