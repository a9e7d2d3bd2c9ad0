"""JoinGroup (11), v0-9: join a classic group and wait for its next generation, or join a consumer group.

Behaviour: from v4 a dynamic member without a member id is assigned one first (MEMBER_ID_REQUIRED); the response is sent
when the join phase completes; in a consumer group it waits for no other member. `broker.groups.classic` and, for
consumer groups, `broker.groups.consumer.classic_protocol` have the state machines.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
A member id first: KIP-394; static members: KIP-345; protocol type: KIP-559; reasons: KIP-800.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_JOIN_GROUP_PROTOCOLS
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.groups.classic.rebalance import join_error
from ottla.broker.handlers.groups.group_requests import submit_group_request
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest


def handle(context: RequestContext, request: JoinGroupRequest) -> HandlerResult:
    """Submit the JoinGroup request to the group coordinator; return its response, or a job that waits for it.

    An error is the error code of the response; INCONSISTENT_GROUP_PROTOCOL for too many protocols.
    """

    def refuse(code: ErrorCode) -> Message:
        return join_error(code, request.member_id, context.version)

    if len(request.protocols) > MAX_JOIN_GROUP_PROTOCOLS:
        return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return submit_group_request(context, request, refuse)
