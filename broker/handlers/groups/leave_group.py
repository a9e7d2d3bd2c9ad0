"""LeaveGroup (13), v0-5: remove a member from a classic or consumer group, from v3 several members.

Behaviour: static members may be identified by instance id alone. `broker.groups.classic` and
`broker.groups.consumer.classic_protocol` have the state machines.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
Several members: KIP-345; reasons: KIP-800.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.broker.requests.error_responses import with_error_response
from ottla.wire.messages.leave_group import LeaveGroupRequest


@with_error_response
def handle(context: RequestContext, request: LeaveGroupRequest) -> HandlerResult:
    """Submit the LeaveGroup request to the group coordinator; return its response once it is committed.

    An error is the error code of the response or of a member.
    """
    return submit_group_request(context, request)
