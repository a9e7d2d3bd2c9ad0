"""ConsumerGroupDescribe (69), v0-1: state, epochs and members of consumer groups (KIP-848).

Behaviour: an unknown group or one of another type is GROUP_ID_NOT_FOUND with a message. A member is returned with its
current assignment, including partitions to revoke, and its target assignment. If the client may not describe one of the
topics in these assignments, the group has only TOPIC_AUTHORIZATION_FAILED. Deviation: a group that occurs twice is
described once.

Source: ``KafkaApis.handleConsumerGroupDescribe``, ``ConsumerGroup.asDescribedGroup`` (apache/kafka 4.3.1).
From KIP-848; member types: KIP-1099.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.handlers.groups.consumer_group_heartbeat import is_served
from ottla.broker.handlers.groups.group_descriptions import (
    GroupDescriber,
    assignor_fields,
    describe_groups,
    named_assignment,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_describe

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember


def _group(machine: GroupStateMachine, group_id: str) -> ConsumerGroup:
    group = machine.find_consumer_group(group_id)
    if group is None:
        other = f"Group {group_id} is not a consumer group."
        why = other if machine.has_group(group_id) else f"Group {group_id} not found."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)
    return group


def _assignor(machine: GroupStateMachine, group: ConsumerGroup) -> str:
    return group.preferred_assignor() or machine.settings.consumer.assignors[0]


def _member(
    context: RequestContext, group: ConsumerGroup, member: ConsumerGroupMember
) -> consumer_group_describe.Member:
    held = {topic: list(numbers) for topic, numbers in member.assigned.items()}
    for topic, numbers in member.revoking.items():
        held[topic] = [*held.get(topic, ()), *numbers]
    return consumer_group_describe.Member(
        member.id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.subscribed_topic_names),
        member.subscribed_regex,
        named_assignment(context, consumer_group_describe, held),
        named_assignment(context, consumer_group_describe, group.target.get(member.id, {})),
        1 if member.classic_metadata is None else 0,
    )


KIND = GroupDescriber(
    consumer_group_describe,
    consumer_group_describe.ConsumerGroupDescribeResponse,
    is_served,
    _group,
    assignor_fields(_assignor),
    _member,
)


def handle(context: RequestContext, request: consumer_group_describe.ConsumerGroupDescribeRequest) -> HandlerResult:
    """Describe each distinct group of the request, once its state is committed; an error concerns only its group."""
    return describe_groups(context, KIND, request)
