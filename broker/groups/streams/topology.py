"""Topology of a Kafka Streams application: source, repartition and changelog topics of each subtopology.

Source: ``StreamsTopology.java``, ``StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord`` (apache/kafka
4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

from ottla.broker.groups.java_collections import iteration_order
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_heartbeat, streams_group_records

TOPICS_PER_STEP = 1_000


class StreamsTopology:
    """Topology of a streams group, sent by its first member; all other members must have the same or an older epoch.

    A new object has only ``value`` and ``epoch``: `index` fills in the rest.
    """

    def __init__(self, value: streams_group_records.StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.subtopologies: dict[str, streams_group_records.Subtopology] = {}
        """Subtopologies by id, in Kafka's iteration order."""
        self.subtopology_by_source: dict[str, str] = {}
        """Source and repartition source topics -> id of the subtopology that reads them."""
        self.required_topics: set[str] = set()
        """Names of all source, repartition source and changelog topics."""

    @classmethod
    def from_value(cls, value: streams_group_records.StreamsGroupTopologyValue) -> StreamsTopology:
        """Return the indexed topology of a record's value."""
        topology = cls(value)
        for _ in topology.index():
            pass
        return topology

    def index(self) -> Generator[None, None, None]:
        """Fill the indices of subtopologies and topics from the value, as a job."""
        named = {row.subtopology_id: row for row in self.value.subtopologies}
        for name in (yield from iteration_order.hash_map_order_job(named)):
            self.subtopologies[name] = row = named[name]
            sources = source_topics(row)
            while part := list(islice(sources, TOPICS_PER_STEP)):
                self.subtopology_by_source.update(dict.fromkeys(part, name))
                yield
            topics = _topics_in(row)
            while part := list(islice(topics, TOPICS_PER_STEP)):
                self.required_topics.update(part)
                yield

    def has_same_content(self, other: StreamsTopology) -> bool:
        """Return True if both topologies have the same epoch and equal subtopologies, which may be in any order."""
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies


def source_topics(row: streams_group_records.Subtopology) -> Iterator[str]:
    """Yield the source topics and repartition source topics of a subtopology."""
    yield from row.source_topics
    yield from (topic.name for topic in row.repartition_source_topics)


def _topics_in(row: streams_group_records.Subtopology) -> Iterator[str]:
    yield from source_topics(row)
    yield from (topic.name for topic in row.state_changelog_topics)


def topic_names_in(topology: streams_group_heartbeat.Topology) -> Iterator[str]:
    """Yield all topic names in the topology of a heartbeat request, with repetitions."""
    for row in topology.subtopologies:
        yield from row.source_topics
        yield from row.repartition_sink_topics
        yield from (topic.name for topic in row.repartition_source_topics)
        yield from (topic.name for topic in row.state_changelog_topics)


def _info(topic: streams_group_heartbeat.TopicInfo) -> streams_group_records.TopicInfo:
    configs = [streams_group_records.TopicConfig(config.key, config.value) for config in topic.topic_configs]
    return streams_group_records.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def from_request(topology: streams_group_heartbeat.Topology) -> StreamsTopology:
    """Return the topology of a heartbeat request in the form of a topology record.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR: the epoch is negative or a subtopology id is repeated, as in Kafka.
    """
    if topology.epoch < 0 or len({row.subtopology_id for row in topology.subtopologies}) < len(topology.subtopologies):
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    rows = [
        streams_group_records.Subtopology(
            row.subtopology_id,
            list(row.source_topics),
            list(row.source_topic_regex),
            [_info(topic) for topic in row.state_changelog_topics],
            list(row.repartition_sink_topics),
            [_info(topic) for topic in row.repartition_source_topics],
            [
                streams_group_records.CopartitionGroup(
                    list(group.source_topics), list(group.source_topic_regex), list(group.repartition_source_topics)
                )
                for group in row.copartition_groups
            ],
        )
        for row in topology.subtopologies
    ]
    return StreamsTopology.from_value(streams_group_records.StreamsGroupTopologyValue(topology.epoch, rows))
