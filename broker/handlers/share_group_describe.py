"""ShareGroupDescribe (77), v1: state, epochs and members of share groups.

Behaviour: a group of another kind, or none, is GROUP_ID_NOT_FOUND with a message. Where any topic a member has may not
be described the group shows nothing but TOPIC_AUTHORIZATION_FAILED.
Deviation: a group asked for twice is answered once.

Source: ``KafkaApis.handleShareGroupDescribe``, ``ShareGroup.asDescribedGroup`` (apache/kafka 4.3.1).

From KIP-932.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.groups.coordinator import machine_of
from ottla.broker.groups.share.state import ShareGroup, ShareMember
from ottla.broker.handlers.rows import WAITS_AT_ONCE, Waits, once, settle
from ottla.broker.handlers.share_acks import is_served
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps, Waiting
from ottla.controller.acl import Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import share_group_describe as m
from ottla.wire.written import Written

ASSIGNOR = "simple"
UNSPOKEN = -(1 << 31)


class _Hidden(Exception):
    """A member has a topic that who asks may not describe."""


def _member(context: Context, member: ShareMember) -> m.Member:
    rows = []
    for topic, numbers in member.assigned.items():
        name = context.image.topic_names.get(topic)
        if name is None:
            continue
        if not context.may(Operation.DESCRIBE, Resource.TOPIC, name):
            raise _Hidden
        rows.append(m.TopicPartitions(topic, name, list(numbers)))
    return m.Member(
        member.id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.names),
        m.Assignment(rows),
    )


def _describe(context: Context, group: ShareGroup) -> Steps[m.DescribedGroup]:
    row = m.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
    )
    try:
        for member in list(group.members.values()):
            row.members.append(_member(context, member))
            yield
    except _Hidden:
        why = "The group has described topic(s) that the client is not authorized to describe."
        return m.DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why, group.id)
    return row


def _row(context: Context, group_id: str, waits: Waits) -> Steps[m.DescribedGroup]:
    if not group_id:
        return m.DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        shard = context.services.groups.shard_of(group_id)
        group = machine_of(shard).shares.group(group_id)
    except ProtocolError as error:
        return m.DescribedGroup(error.code, error.message, group_id)
    row = yield from _describe(context, group)
    ticket = shard.read()
    if ticket is not None:
        waits.append((ticket, partial(_take, row)))
    return row


def _take(row: m.DescribedGroup, answer: Any) -> None:
    """What was read may never be committed: then nothing is told of the group."""
    if isinstance(answer, ProtocolError):
        row.error_code, row.error_message, row.group_state, row.assignor_name = answer.code, None, "", ""
        row.group_epoch = row.assignment_epoch = 0
        row.members, row.authorized_operations = [], UNSPOKEN


def _describe_all(context: Context, request: m.ShareGroupDescribeRequest) -> Waiting[Answer]:
    out, waits = m.ShareGroupDescribeResponse(groups=Written(m.ShareGroupDescribeResponse, context.version)), Waits()
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


def handle(context: Context, request: m.ShareGroupDescribeRequest) -> Answer:
    """Answer each group on its own."""
    return context.turn.go(_describe_all(context, request))
