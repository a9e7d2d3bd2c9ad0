"""StreamsGroupDescribe (89), v0: state, topology, epochs and members of streams groups.

Behaviour: a group of another kind, or none, is GROUP_ID_NOT_FOUND with a message. The topology shows how large internal
topics are once that is known. Where any of its topics may not be described the group shows nothing but
TOPIC_AUTHORIZATION_FAILED.
Deviation: a group asked for twice is answered once.

Source: ``KafkaApis.handleStreamsGroupDescribe``, ``StreamsGroup.asDescribedGroup`` (apache/kafka 4.3.1).

From KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from ottla.broker.groups.coordinator import machine_of
from ottla.broker.groups.java_order import java_text
from ottla.broker.groups.streams.configured import ConfiguredSubtopology, InternalTopic
from ottla.broker.groups.streams.state import NOTHING, Member, StreamsGroup
from ottla.broker.handlers.rows import WAITS_AT_ONCE, Waits, once, settle
from ottla.broker.handlers.streams_group_heartbeat import is_served
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps, Waiting
from ottla.controller.acl import Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_describe as m
from ottla.wire.messages import streams_group_records as kept
from ottla.wire.written import Written

UNSPOKEN = -(1 << 31)


def _tasks(tasks: Mapping[str, Collection[int]]) -> list[m.TaskIds]:
    return [m.TaskIds(name, sorted(tasks[name])) for name in sorted(tasks, key=java_text)]


def _member(group: StreamsGroup, member: Member) -> m.Member:
    has, target = member.assigned, group.target.get(member.id, NOTHING)
    return m.Member(
        member.id,
        member.epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        None if member.endpoint is None else m.Endpoint(*member.endpoint),
        [m.KeyValue(key, value) for key, value in member.tags],
        assignment=m.Assignment(_tasks(has.active), _tasks(has.standby), _tasks(has.warmup)),
        target_assignment=m.Assignment(*map(_tasks, target)),
    )


def _by_name(topics: Iterable[m.TopicInfo]) -> list[m.TopicInfo]:
    return sorted(topics, key=lambda topic: java_text(topic.name))


def _sized(topic: InternalTopic) -> m.TopicInfo:
    configs = [m.KeyValue(key, value) for key, value in topic.configs]
    return m.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _known(name: str, row: ConfiguredSubtopology) -> m.Subtopology:
    return m.Subtopology(
        name,
        sorted(row.sources, key=java_text),
        sorted(row.repartition_sinks, key=java_text),
        _by_name(map(_sized, row.changelogs.values())),
        _by_name(map(_sized, row.repartition_sources.values())),
    )


def _said(topic: kept.TopicInfo) -> m.TopicInfo:
    configs = [m.KeyValue(config.key, config.value) for config in topic.topic_configs]
    return m.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _as_said(name: str, row: kept.Subtopology) -> m.Subtopology:
    return m.Subtopology(
        name,
        sorted(row.source_topics, key=java_text),
        sorted(row.repartition_sink_topics, key=java_text),
        _by_name(map(_said, row.state_changelog_topics)),
        _by_name(map(_said, row.repartition_source_topics)),
    )


def _topology(group: StreamsGroup) -> m.Topology | None:
    """As it is with the topics there are; as its first member said it while they are not as they must be."""
    known = group.configured
    if known is not None and known.is_ready:
        return m.Topology(known.epoch, [_known(*item) for item in (known.subtopologies or {}).items()])
    if group.topology is None:
        return None
    rows = group.topology.subtopologies
    return m.Topology(group.topology.epoch, [_as_said(name, rows[name]) for name in sorted(rows, key=java_text)])


def _hidden(context: Context, topology: m.Topology | None) -> Steps[bool]:
    """Whether there is a topic in it that who asks may not describe."""
    for row in (topology.subtopologies or ()) if topology is not None else ():
        named = [*row.source_topics, *row.repartition_sink_topics]
        for name in [*named, *(topic.name for topic in [*row.repartition_source_topics, *row.state_changelog_topics])]:
            if not context.may(Operation.DESCRIBE, Resource.TOPIC, name):
                return True
            yield
    return False


def _describe(context: Context, group: StreamsGroup) -> Steps[m.DescribedGroup]:
    row = m.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group),
    )
    if (yield from _hidden(context, row.topology)):
        why = "The described group uses topics that the client is not authorized to describe."
        return m.DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why, group.id)
    for member in list(group.members.values()):
        row.members.append(_member(group, member))
        yield
    return row


def _row(context: Context, group_id: str, waits: Waits) -> Steps[m.DescribedGroup]:
    if not group_id:
        return m.DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        shard = context.services.groups.shard_of(group_id)
        group = machine_of(shard).streams.group(group_id)
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
        row.error_code, row.error_message, row.group_state, row.topology = answer.code, None, "", None
        row.group_epoch = row.assignment_epoch = 0
        row.members, row.authorized_operations = [], UNSPOKEN


def _describe_all(context: Context, request: m.StreamsGroupDescribeRequest) -> Waiting[Answer]:
    groups, waits = Written(m.StreamsGroupDescribeResponse, context.version), Waits()
    out = m.StreamsGroupDescribeResponse(groups=groups)
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


def handle(context: Context, request: m.StreamsGroupDescribeRequest) -> Answer:
    """Answer each group on its own."""
    return context.turn.go(_describe_all(context, request))
