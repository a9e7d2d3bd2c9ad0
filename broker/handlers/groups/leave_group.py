"""LeaveGroup (13), v0-5: remove a member from a classic group, from v3 several members.

Behaviour: static members may be identified by instance id alone. `broker.groups.classic` has the state machine.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
Several members: KIP-345; reasons: KIP-800.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(context: RequestContext, request: LeaveGroupRequest) -> HandlerResult:
    """Submit the LeaveGroup request to the group coordinator; return its response, or a job that waits for it."""

    def refuse(code: ErrorCode) -> Message:
        return LeaveGroupResponse(error_code=code)

    return submit_group_request(context, request, refuse)
