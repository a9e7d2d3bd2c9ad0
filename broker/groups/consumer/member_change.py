"""Change of a consumer group member by its request."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.consumer.groups import ConsumerGroups


class MemberChange(NamedTuple):
    """Member before (``member``) and after (``updated``) a JoinGroup or heartbeat, with the group and the request."""

    groups: ConsumerGroups
    group: ConsumerGroup
    member: ConsumerGroupMember
    updated: ConsumerGroupMember
    call: GroupRequest
    now_ms: int
