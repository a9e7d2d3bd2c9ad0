"""Responses to requests of the classic and consumer protocols for the id of a streams group.

Source: ``GroupMetadataManager.classicGroupJoin``, ``maybeDeleteEmptyStreamsGroup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.share.foreign_requests import reject_foreign_request
from ottla.broker.groups.streams.groups import StreamsGroups
from ottla.broker.groups.streams.records import group_tombstones
from ottla.wire.messages import join_group


def handle_foreign_request(groups: StreamsGroups, call: GroupRequest, now_ms: int) -> GroupEffects:
    """Return the effects of a request of another group protocol to a streams group: an error as the reply.

    Only a JoinGroup to a group without members is accepted: it replaces the group by a classic group.
    """
    group = groups.groups[call.request.group_id]
    if not isinstance(call.request, join_group.JoinGroupRequest) or group.members:
        return reject_foreign_request(call)
    fx = groups.classic_groups.join(call, now_ms)
    if fx.records:  # accepted: a new classic group replaces this one
        fx.records[:0] = group_tombstones(group)
        groups.cancel_initial_delay(group.id, fx)
    return fx
