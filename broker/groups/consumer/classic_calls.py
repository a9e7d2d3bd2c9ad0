"""What members of the older protocol hear from a consumer group.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.records import group_tombstones
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.state import Call
from ottla.log.machine import Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import sync_group as s


def handle(groups: ConsumerGroups, call: Call, now_ms: int) -> Fx:
    """One call."""
    request, fx = call.request, Fx()
    group = groups.groups[request.group_id]
    match request:
        case j.JoinGroupRequest():
            if not group.members:
                fx = groups.classic.join(call, now_ms)
                if fx.records:  # it is let in: the group begins anew, as one of the older kind
                    fx.records[:0] = group_tombstones(group)
                return fx
            answer = rb.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, call.version)
            fx.replies.append(Reply(call.ticket, answer))
        case s.SyncGroupRequest():
            fx.replies.append(Reply(call.ticket, s.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        case hb.HeartbeatRequest():
            fx.replies.append(Reply(call.ticket, hb.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        case _:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if call.version < 3:
                fx.replies.append(Reply(call.ticket, lg.LeaveGroupResponse(error_code=code)))
                return fx
            rows = [lg.MemberResponse(row.member_id, row.group_instance_id, code) for row in request.members]
            fx.replies.append(Reply(call.ticket, lg.LeaveGroupResponse(members=rows)))
    return fx
