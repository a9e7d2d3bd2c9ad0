"""ConsumerGroupDescribe (69), v0-1: state, epochs and members of groups of the new protocol.

Behaviour: a group of another kind, or none, is GROUP_ID_NOT_FOUND with a message. A member is shown with what it has,
what it still has to give up among that, and with its target. Where any of those topics may not be described the group
shows nothing but TOPIC_AUTHORIZATION_FAILED.
Deviation: a group asked for twice is answered once.

Source: ``KafkaApis.handleConsumerGroupDescribe``, ``ConsumerGroup.asDescribedGroup`` (apache/kafka 4.3.1).

From KIP-848; kinds of members: KIP-1099.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.groups.coordinator import machine_of
from ottla.broker.handlers.consumer_group_heartbeat import is_served
from ottla.broker.handlers.rows import WAITS_AT_ONCE, Waits, once, settle
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps, Waiting
from ottla.controller.acl import Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_describe as m
from ottla.wire.written import Written

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.state import ConsumerGroup, Member

UNSPOKEN = -(1 << 31)


class _Hidden(Exception):
    """A member has to do with a topic that who asks may not describe."""


def _topics(context: Context, held: Mapping[bytes, Iterable[int]]) -> m.Assignment:
    rows = []
    for topic, numbers in held.items():
        name = context.image.topic_names.get(topic)
        if name is None:
            continue
        if not context.may(Operation.DESCRIBE, Resource.TOPIC, name):
            raise _Hidden
        rows.append(m.TopicPartitions(topic, name, list(numbers)))
    return m.Assignment(rows)


def _member(context: Context, group: ConsumerGroup, member: Member) -> m.Member:
    held = {topic: list(numbers) for topic, numbers in member.assigned.items()}
    for topic, numbers in member.revoking.items():
        held[topic] = [*held.get(topic, ()), *numbers]
    return m.Member(
        member.id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.names),
        member.regex,
        _topics(context, held),
        _topics(context, group.target.get(member.id, {})),
        1 if member.classic is None else 0,
    )


def _describe(context: Context, group: ConsumerGroup, default: str) -> Steps[m.DescribedGroup]:
    row = m.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default,
    )
    try:
        for member in list(group.members.values()):
            row.members.append(_member(context, group, member))
            yield
    except _Hidden:
        why = "The group has described topic(s) that the client is not authorized to describe."
        return m.DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why, group.id)
    return row


def _row(context: Context, group_id: str, wait: Waits) -> Steps[m.DescribedGroup]:
    """One group."""
    if not group_id:
        return m.DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        shard = context.services.groups.shard_of(group_id)
    except ProtocolError as error:
        return m.DescribedGroup(error.code, group_id=group_id)
    machine = machine_of(shard)
    group = machine.consumer(group_id)
    if group is None:
        other = f"Group {group_id} is not a consumer group."
        why = other if machine.knows(group_id) else f"Group {group_id} not found."
        return m.DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, why, group_id)
    row = yield from _describe(context, group, machine.settings.consumer.assignors[0])
    ticket = shard.read()
    if ticket is not None:
        wait.append((ticket, partial(_take, row)))
    return row


def _take(row: m.DescribedGroup, answer: Any) -> None:
    """What was read may never be committed: then nothing is told of the group."""
    if isinstance(answer, ProtocolError):
        row.error_code, row.error_message, row.group_state, row.assignor_name = answer.code, None, "", ""
        row.group_epoch = row.assignment_epoch = 0
        row.members, row.authorized_operations = [], UNSPOKEN


def _describe_all(context: Context, request: m.ConsumerGroupDescribeRequest) -> Waiting[Answer]:
    out, waits = (
        m.ConsumerGroupDescribeResponse(groups=Written(m.ConsumerGroupDescribeResponse, context.version)),
        Waits(),
    )
    for group_id in once(request.group_ids):
        yield None
        if group_id is None:
            continue
        if not is_served(context):
            row = m.DescribedGroup(ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)
        elif not context.may(Operation.DESCRIBE, Resource.GROUP, group_id):
            row = m.DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
        else:
            row = yield from _row(context, group_id, waits)
            if request.include_authorized_operations and not row.error_code:
                row.authorized_operations = context.authorized(Resource.GROUP, group_id)
        out.groups.append(row)
        if len(out.groups) % WAITS_AT_ONCE == 0:  # while the rows are still at hand
            yield from settle(waits)
    yield from settle(waits)
    return out


def handle(context: Context, request: m.ConsumerGroupDescribeRequest) -> Answer:
    """Answer each group on its own."""
    return context.turn.go(_describe_all(context, request))
