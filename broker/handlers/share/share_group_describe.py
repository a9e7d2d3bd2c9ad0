"""ShareGroupDescribe (77), v1: state, epochs and members of share groups.

Behaviour: an unknown group or one of another type is GROUP_ID_NOT_FOUND with a message. If the client may not describe
one of the topics that are assigned to members, the group has only TOPIC_AUTHORIZATION_FAILED. Deviation: a group that
occurs twice is described once.

Source: ``KafkaApis.handleShareGroupDescribe``, ``ShareGroup.asDescribedGroup`` (apache/kafka 4.3.1).
From KIP-932.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.groups.share.share_group import ShareGroup, ShareGroupMember
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.handlers.groups.group_descriptions import (
    GroupDescriber,
    assignor_fields,
    describe_groups,
    named_assignment,
)
from ottla.broker.handlers.share.share_acknowledgements import is_served
from ottla.wire.messages import share_group_describe

ASSIGNOR = "simple"


def _member(context: RequestContext, group: ShareGroup, member: ShareGroupMember) -> share_group_describe.Member:
    return share_group_describe.Member(
        member.id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.subscribed_topic_names),
        named_assignment(context, share_group_describe, member.assigned),
    )


def _group(machine: GroupStateMachine, group_id: str) -> ShareGroup:
    return machine.share_groups.require_group(group_id)


KIND = GroupDescriber(
    share_group_describe,
    share_group_describe.ShareGroupDescribeResponse,
    is_served,
    _group,
    assignor_fields(lambda *_: ASSIGNOR),
    _member,
)


def handle(context: RequestContext, request: share_group_describe.ShareGroupDescribeRequest) -> HandlerResult:
    """Describe each distinct group of the request, once its state is committed; an error concerns only its group."""
    return describe_groups(context, KIND, request)
