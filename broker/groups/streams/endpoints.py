"""Where an application's other members can be asked for what they store: endpoints, with the partitions behind them.

Deviation: where a topic, or what the topology comes to, is not there, Kafka fails the heartbeat; here it is left out.

Source: ``EndpointToPartitionsManager.java``, ``StreamsGroup.buildEndpointToPartitions`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.broker.groups import java_order
from ottla.broker.groups.streams.state import Member, StreamsGroup
from ottla.controller.image import MetadataImage
from ottla.wire.messages import streams_group_heartbeat as hb


def endpoints(group: StreamsGroup, updated: Member, image: MetadataImage) -> list[hb.EndpointToPartitions]:
    """One row for each member that has an endpoint; last the member that asks, as it is now."""
    out = []
    for member in [*(member for member in group.members.values() if member.id != updated.id), updated]:
        if member.endpoint is None:
            continue
        row = group.endpoint_rows.get(member.id)
        if row is None:
            row = group.endpoint_rows[member.id] = _row(group, member, member.endpoint, image)
        out.append(row)
    return out


def _row(
    group: StreamsGroup, member: Member, endpoint: tuple[str, int], image: MetadataImage
) -> hb.EndpointToPartitions:
    return hb.EndpointToPartitions(
        hb.StreamsGroupHeartbeatResponseEndpoint(*endpoint),
        _topics(group, member.assigned.active, image),
        _topics(group, member.assigned.standby, image),
    )


def _topics(group: StreamsGroup, tasks: Mapping[str, Collection[int]], image: MetadataImage) -> list[hb.TopicPartition]:
    out: list[hb.TopicPartition] = []
    known = group.configured.subtopologies if group.configured is not None else None
    for name in java_order.texts(tasks):
        subtopology = (known or {}).get(name)
        if subtopology is None:
            continue
        numbers = java_order.numbers(tasks[name])
        for topic in java_order.texts(subtopology.sources | subtopology.repartition_sources.keys(), copied=True):
            there = image.topics.get(topic)
            if there is None:
                continue
            few = len(there.partitions) < len(numbers)  # tasks beyond its partitions do not read it
            rows = sorted(numbers)[: len(there.partitions)] if few else list(numbers)
            out.append(hb.TopicPartition(topic, rows))
    return out
