"""Error responses to requests of the classic and consumer protocols for the id of a share or streams group.

Source: ``GroupMetadataManager.classicGroupJoin``, ``getOrMaybeCreateConsumerGroup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode as Error
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, join_group


def reject_foreign_request(call: GroupRequest) -> GroupEffects:
    """Return effects that reply with an error to a request of another protocol to a share or streams group.

    The reply is a response to a ConsumerGroupHeartbeat (GROUP_ID_NOT_FOUND), else a `ProtocolError`:
    INCONSISTENT_GROUP_PROTOCOL for a JoinGroup, UNKNOWN_MEMBER_ID for other requests.
    """
    request = call.request
    if isinstance(request, consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
        why = f"Group {request.group_id} is not a consumer group."
        return GroupEffects(
            replies=[
                RequestReply(
                    call.pending_request,
                    consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(0, Error.GROUP_ID_NOT_FOUND, why),
                )
            ]
        )
    joins = isinstance(request, join_group.JoinGroupRequest)
    code = Error.INCONSISTENT_GROUP_PROTOCOL if joins else Error.UNKNOWN_MEMBER_ID
    return GroupEffects(replies=[RequestReply(call.pending_request, ProtocolError(code))])
