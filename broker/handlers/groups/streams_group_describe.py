"""StreamsGroupDescribe (89), v0: state, topology, epochs and members of streams groups.

Behaviour: a group of another kind, or none, is GROUP_ID_NOT_FOUND with a message. The topology shows how large internal
topics are once that is known. Where any of its topics may not be described the group shows nothing but
TOPIC_AUTHORIZATION_FAILED.
Deviation: a group asked for twice is answered once.

Source: ``KafkaApis.handleStreamsGroupDescribe``, ``StreamsGroup.asDescribedGroup`` (apache/kafka 4.3.1).

From KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.groups.streams.configured_topology import ConfiguredInternalTopic, ConfiguredSubtopology
from ottla.broker.groups.streams.streams_group import EMPTY_TASKS, StreamsGroup, StreamsGroupMember
from ottla.broker.handlers.groups.group_descriptions import GroupDescriber, TopicsHidden, describe_groups
from ottla.broker.handlers.groups.streams_group_heartbeat import is_served
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.time_slice import Job
from ottla.wire.messages import streams_group_describe as m
from ottla.wire.messages import streams_group_records as kept


def _tasks(tasks: Mapping[str, Collection[int]]) -> list[m.TaskIds]:
    return [m.TaskIds(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)]


def _member(context: RequestContext, group: StreamsGroup, member: StreamsGroupMember) -> m.Member:
    has, target = member.assigned, group.target.get(member.id, EMPTY_TASKS)
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


def _sorted_by_name(topics: Iterable[m.TopicInfo]) -> list[m.TopicInfo]:
    return sorted(topics, key=lambda topic: java_string_sort_key(topic.name))


def _configured_topic(topic: ConfiguredInternalTopic) -> m.TopicInfo:
    configs = [m.KeyValue(key, value) for key, value in topic.configs]
    return m.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _configured_subtopology(name: str, row: ConfiguredSubtopology) -> m.Subtopology:
    return m.Subtopology(
        name,
        sorted(row.source_topics, key=java_string_sort_key),
        sorted(row.repartition_sink_topics, key=java_string_sort_key),
        _sorted_by_name(map(_configured_topic, row.changelog_topics.values())),
        _sorted_by_name(map(_configured_topic, row.repartition_source_topics.values())),
    )


def _reported_topic(topic: kept.TopicInfo) -> m.TopicInfo:
    configs = [m.KeyValue(config.key, config.value) for config in topic.topic_configs]
    return m.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _reported_subtopology(name: str, row: kept.Subtopology) -> m.Subtopology:
    return m.Subtopology(
        name,
        sorted(row.source_topics, key=java_string_sort_key),
        sorted(row.repartition_sink_topics, key=java_string_sort_key),
        _sorted_by_name(map(_reported_topic, row.state_changelog_topics)),
        _sorted_by_name(map(_reported_topic, row.repartition_source_topics)),
    )


def _topology(group: StreamsGroup) -> m.Topology | None:
    """As it is with the topics there are; as its first member said it while they are not as they must be."""
    known = group.configured
    if known is not None and known.is_ready:
        return m.Topology(known.epoch, [_configured_subtopology(*item) for item in (known.subtopologies or {}).items()])
    if group.topology is None:
        return None
    rows = group.topology.subtopologies
    return m.Topology(
        group.topology.epoch,
        [_reported_subtopology(name, rows[name]) for name in sorted(rows, key=java_string_sort_key)],
    )


def _topics(topology: m.Topology) -> Iterator[str]:
    for row in topology.subtopologies or ():
        yield from [*row.source_topics, *row.repartition_sink_topics]
        yield from (topic.name for topic in [*row.repartition_source_topics, *row.state_changelog_topics])


def _group_fields(context: RequestContext, machine: GroupStateMachine, group: StreamsGroup) -> Job[Mapping[str, Any]]:
    """The topology, where who asks may describe each topic in it."""
    topology = _topology(group)
    for name in () if topology is None else _topics(topology):
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise TopicsHidden
        yield
    return {"topology": topology}


def _group(machine: GroupStateMachine, group_id: str) -> StreamsGroup:
    return machine.streams_groups.require_group(group_id)


HIDDEN_MESSAGE = "The described group uses topics that the client is not authorized to describe."
KIND = GroupDescriber(m, m.StreamsGroupDescribeResponse, is_served, _group, _group_fields, _member, HIDDEN_MESSAGE)


def handle(context: RequestContext, request: m.StreamsGroupDescribeRequest) -> HandlerResult:
    """Answer each group on its own."""
    return describe_groups(context, KIND, request)
