"""Endpoints of a streams group's members for interactive queries, with the partitions of their tasks.

Deviation: where a topic or the configured topology is missing, Kafka fails the heartbeat; here it is left out.

Source: ``EndpointToPartitionsManager.java``, ``StreamsGroup.buildEndpointToPartitions`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.streams.streams_group import StreamsGroup, StreamsGroupMember
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages import streams_group_heartbeat


def build_endpoint_partitions(
    group: StreamsGroup, updated: StreamsGroupMember, image: MetadataImage
) -> list[streams_group_heartbeat.EndpointToPartitions]:
    """Return ``partitions_by_user_endpoint`` of a heartbeat response: the partitions of each member with an endpoint.

    They are those of its active and standby tasks. The member of the request is last, in its state ``updated``. Each
    element is cached in the group, by member id.
    """
    out = []
    for member in [*(member for member in group.members.values() if member.id != updated.id), updated]:
        if member.endpoint is None:
            continue
        row = group.cached_endpoint_partitions.get(member.id)
        if row is None:
            row = group.cached_endpoint_partitions[member.id] = _endpoint_partitions(
                group, member, member.endpoint, image
            )
        out.append(row)
    return out


def _endpoint_partitions(
    group: StreamsGroup, member: StreamsGroupMember, endpoint: tuple[str, int], image: MetadataImage
) -> streams_group_heartbeat.EndpointToPartitions:
    return streams_group_heartbeat.EndpointToPartitions(
        streams_group_heartbeat.StreamsGroupHeartbeatResponseEndpoint(*endpoint),
        _topic_partitions(group, member.assigned.active, image),
        _topic_partitions(group, member.assigned.standby, image),
    )


def _topic_partitions(
    group: StreamsGroup, tasks: Mapping[str, Collection[int]], image: MetadataImage
) -> list[streams_group_heartbeat.TopicPartition]:
    out: list[streams_group_heartbeat.TopicPartition] = []
    known = group.configured.subtopologies if group.configured is not None else None
    for name in iteration_order.hash_map_order(tasks):
        subtopology = (known or {}).get(name)
        if subtopology is None:
            continue
        numbers = iteration_order.integer_hash_set_order(tasks[name])
        for topic in iteration_order.hash_map_order(
            subtopology.source_topics | subtopology.repartition_source_topics.keys(),
            copied=len(subtopology.source_topics),
        ):
            there = image.topics.get(topic)
            if there is None:
                continue
            few = len(there.partitions) < len(numbers)  # tasks beyond its partitions do not read it
            rows = sorted(numbers)[: len(there.partitions)] if few else list(numbers)
            out.append(streams_group_heartbeat.TopicPartition(topic, rows))
    return out
