"""SyncGroup (14), v0-5: the leader of a classic group sends the assignment, the other members wait for theirs.

Behaviour: the response is sent when the assignment is committed to the log. A member of a consumer group gets the
coordinator's assignment. `broker.groups.classic` and `broker.groups.consumer.classic_protocol` have the state machines.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
Static members: KIP-345; protocol type and name: KIP-559.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_SYNC_GROUP_ASSIGNMENTS
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.broker.requests.error_responses import with_error_response
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.sync_group import SyncGroupRequest


@with_error_response
def handle(context: RequestContext, request: SyncGroupRequest) -> HandlerResult:
    """Submit the SyncGroup request to the group coordinator; return its response, or a job that waits for it.

    An error is the error code of the response; INCONSISTENT_GROUP_PROTOCOL from v5 without protocol type or name,
    UNKNOWN_SERVER_ERROR for too many assignments.
    """
    if context.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if len(request.assignments) > MAX_SYNC_GROUP_ASSIGNMENTS:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return submit_group_request(context, request)
