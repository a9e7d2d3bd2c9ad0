"""StreamsGroupDescribe (89), v0: state, topology, epochs and members of streams groups.

Behaviour: an unknown group or one of another type is GROUP_ID_NOT_FOUND with a message. The topology has the partition
counts of internal topics once these are determined. If the client may not describe one of its topics, the group has
only TOPIC_AUTHORIZATION_FAILED. Deviation: a group that occurs twice is described once.

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
from ottla.jobs.job import Job
from ottla.wire.messages import streams_group_describe
from ottla.wire.messages import streams_group_records as kept


def _tasks(tasks: Mapping[str, Collection[int]]) -> list[streams_group_describe.TaskIds]:
    return [
        streams_group_describe.TaskIds(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)
    ]


def _member(context: RequestContext, group: StreamsGroup, member: StreamsGroupMember) -> streams_group_describe.Member:
    has, target = member.assigned, group.target.get(member.id, EMPTY_TASKS)
    return streams_group_describe.Member(
        member.id,
        member.epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        None if member.endpoint is None else streams_group_describe.Endpoint(*member.endpoint),
        [streams_group_describe.KeyValue(key, value) for key, value in member.tags],
        assignment=streams_group_describe.Assignment(_tasks(has.active), _tasks(has.standby), _tasks(has.warmup)),
        target_assignment=streams_group_describe.Assignment(*map(_tasks, target)),
    )


def _sorted_by_name(topics: Iterable[streams_group_describe.TopicInfo]) -> list[streams_group_describe.TopicInfo]:
    return sorted(topics, key=lambda topic: java_string_sort_key(topic.name))


def _configured_topic(topic: ConfiguredInternalTopic) -> streams_group_describe.TopicInfo:
    configs = [streams_group_describe.KeyValue(key, value) for key, value in topic.configs]
    return streams_group_describe.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _configured_subtopology(name: str, row: ConfiguredSubtopology) -> streams_group_describe.Subtopology:
    return streams_group_describe.Subtopology(
        name,
        sorted(row.source_topics, key=java_string_sort_key),
        sorted(row.repartition_sink_topics, key=java_string_sort_key),
        _sorted_by_name(map(_configured_topic, row.changelog_topics.values())),
        _sorted_by_name(map(_configured_topic, row.repartition_source_topics.values())),
    )


def _reported_topic(topic: kept.TopicInfo) -> streams_group_describe.TopicInfo:
    configs = [streams_group_describe.KeyValue(config.key, config.value) for config in topic.topic_configs]
    return streams_group_describe.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _reported_subtopology(name: str, row: kept.Subtopology) -> streams_group_describe.Subtopology:
    return streams_group_describe.Subtopology(
        name,
        sorted(row.source_topics, key=java_string_sort_key),
        sorted(row.repartition_sink_topics, key=java_string_sort_key),
        _sorted_by_name(map(_reported_topic, row.state_changelog_topics)),
        _sorted_by_name(map(_reported_topic, row.repartition_source_topics)),
    )


def _topology(group: StreamsGroup) -> streams_group_describe.Topology | None:
    """Return the configured topology; while it is not ready, the one that a member sent; None if there is none."""
    known = group.configured
    if known is not None and known.is_ready:
        return streams_group_describe.Topology(
            known.epoch, [_configured_subtopology(*item) for item in (known.subtopologies or {}).items()]
        )
    if group.topology is None:
        return None
    rows = group.topology.subtopologies
    return streams_group_describe.Topology(
        group.topology.epoch,
        [_reported_subtopology(name, rows[name]) for name in sorted(rows, key=java_string_sort_key)],
    )


def _topics(topology: streams_group_describe.Topology) -> Iterator[str]:
    for row in topology.subtopologies or ():
        yield from [*row.source_topics, *row.repartition_sink_topics]
        yield from (topic.name for topic in [*row.repartition_source_topics, *row.state_changelog_topics])


def _group_fields(context: RequestContext, machine: GroupStateMachine, group: StreamsGroup) -> Job[Mapping[str, Any]]:
    """Return the topology, None without one, as a field of the group's row, as a job.

    Raises:
        TopicsHidden: The client may not describe one of its topics.
    """
    topology = _topology(group)
    for name in () if topology is None else _topics(topology):
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise TopicsHidden
        yield None
    return {"topology": topology}


def _group(machine: GroupStateMachine, group_id: str) -> StreamsGroup:
    return machine.streams_groups.require_group(group_id)


HIDDEN_MESSAGE = "The described group uses topics that the client is not authorized to describe."
KIND = GroupDescriber(
    streams_group_describe,
    streams_group_describe.StreamsGroupDescribeResponse,
    is_served,
    _group,
    _group_fields,
    _member,
    HIDDEN_MESSAGE,
)


def handle(context: RequestContext, request: streams_group_describe.StreamsGroupDescribeRequest) -> HandlerResult:
    """Describe each distinct group of the request, once its state is committed; an error concerns only its group."""
    return describe_groups(context, KIND, request)
