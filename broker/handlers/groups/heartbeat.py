"""Heartbeat (12), v0-4: stay in a group, learn of a rebalance.

Behaviour: REBALANCE_IN_PROGRESS while members are to rejoin; no error while the group is still being read.
The rules are in `broker.groups.classic`.

Source: ``GroupMetadataManager.java``, ``GroupCoordinatorService.heartbeat`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> HandlerResult:
    """Ask the group's machine."""

    def refuse(code: ErrorCode) -> Message:
        return HeartbeatResponse(error_code=0 if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)

    return submit_group_request(context, request, refuse)
