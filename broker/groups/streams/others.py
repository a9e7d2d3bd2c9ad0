"""What members of other kinds of groups are told of a streams group.

Source: ``GroupMetadataManager.classicGroupJoin``, ``maybeDeleteEmptyStreamsGroup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.share.others import refuse
from ottla.broker.groups.state import Call
from ottla.broker.groups.streams.groups import StreamsGroups
from ottla.broker.groups.streams.records import group_tombstones
from ottla.wire.messages import join_group as j


def handle(groups: StreamsGroups, call: Call, now_ms: int) -> Fx:
    """One call to a group that is a streams group: a classic member that joins takes an empty one's place."""
    group = groups.groups[call.request.group_id]
    if not isinstance(call.request, j.JoinGroupRequest) or group.members:
        return refuse(call)
    fx = groups.classic.join(call, now_ms)
    if fx.records:  # it is let in: the group begins anew, as one of the older kind
        fx.records[:0] = group_tombstones(group)
        groups.forget_delay(group.id, fx)
    return fx
