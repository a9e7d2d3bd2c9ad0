"""Configured topology: number of tasks by subtopology, and internal topics with their numbers of partitions.

Source: ``InternalTopicManager.java``, ``ConfiguredTopology.java``, ``ChangelogTopics.java`` (apache/kafka 4.3.1),
KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.config.limits import MAX_STREAMS_TASKS
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key
from ottla.broker.groups.streams.partition_counts import (
    PartitionCounts,
    enforce_copartitioning,
    repartition_topic_counts,
)
from ottla.broker.groups.streams.status import StreamsGroupStatus, TopicConfigurationException
from ottla.broker.groups.streams.topology import StreamsTopology, source_topics
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_records

MAX_TOPICS_SHOWN = 3
"""Number of topic names in an error message."""


class ConfiguredInternalTopic(NamedTuple):
    """Internal topic (repartition or changelog) of a Streams application, with its settings."""

    name: str
    partitions: int
    replication_factor: int
    """Replication factor; 0 for the default of the cluster."""
    configs: tuple[tuple[str, str], ...]


class ConfiguredSubtopology(NamedTuple):
    """Subtopology with one task for each partition of its largest source or repartition source topic."""

    task_count: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, ConfiguredInternalTopic]
    repartition_sink_topics: frozenset[str]
    changelog_topics: Mapping[str, ConfiguredInternalTopic]

    @property
    def is_stateful(self) -> bool:
        """True if the subtopology has state stores (changelog topics), so that it may have standby tasks."""
        return bool(self.changelog_topics)


class ConfiguredTopology(NamedTuple):
    """Result of `configure_topology`: tasks and internal topics, or the problem that prevents an assignment."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """Subtopologies by id, in order of the ids; None if the topology cannot be configured."""
    missing_internal_topics: Mapping[str, ConfiguredInternalTopic]
    """Internal topics by name that are to be created."""
    problem: tuple[StreamsGroupStatus, str] | None
    """Status and detail for the heartbeat responses; None without a problem."""

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned: there is no ``problem``."""
        return self.problem is None


def configure_topology(topology: StreamsTopology, image: MetadataImage) -> ConfiguredTopology:
    """Return the topology configured with the existing topics of the metadata image.

    Missing or wrongly partitioned topics are no error: they are the ``problem`` of the result.

    Raises:
        ProtocolError: STREAMS_INVALID_TOPOLOGY; UNKNOWN_SERVER_ERROR for invalid indices or partition counts, as in
            Kafka.
    """
    groups = [group for row in topology.subtopologies.values() for group in _copartition_groups(row)]
    try:
        _check_sources(topology, image)
        counts = _decide_partition_counts(topology, image, groups)
        subtopologies = {
            name: _subtopology(topology.subtopologies[name], counts)
            for name in sorted(topology.subtopologies, key=java_string_sort_key)
        }
        _check_tasks(subtopologies)
        missing = _missing(topology, subtopologies, image)
    except TopicConfigurationException as wrong:
        return ConfiguredTopology(topology.epoch, None, {}, (wrong.status, wrong.message))
    problem = None
    if missing:
        names = iteration_order.hash_map_order(missing)
        problem = StreamsGroupStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_abbreviate(names)}"
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _unknown_server_error() -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _abbreviate(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MAX_TOPICS_SHOWN} additional topics" if len(every) > MAX_TOPICS_SHOWN else ""
    return ", ".join(every[:MAX_TOPICS_SHOWN]) + more


def _copartition_groups(row: streams_group_records.Subtopology) -> list[frozenset[str]]:
    """Return the sets of topics of a subtopology that must have equal numbers of partitions.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR: an index of a topic is invalid.
    """

    def at(names: list[str], places: list[int]) -> list[str]:
        if any(not 0 <= place < len(names) for place in places):
            raise _unknown_server_error()
        return [names[place] for place in places]

    internal = [topic.name for topic in row.repartition_source_topics]
    return [
        frozenset(at(row.source_topics, group.source_topics) + at(internal, group.repartition_source_topics))
        for group in row.copartition_groups
    ]


def _check_sources(topology: StreamsTopology, image: MetadataImage) -> None:
    missing = {
        name for row in topology.subtopologies.values() for name in row.source_topics if name not in image.topics
    }
    if missing:
        why = f"Source topics {_abbreviate(sorted(missing, key=java_string_sort_key))} are missing."
        raise TopicConfigurationException(StreamsGroupStatus.MISSING_SOURCE_TOPICS, why)


def _decide_partition_counts(
    topology: StreamsTopology, image: MetadataImage, groups: list[frozenset[str]]
) -> PartitionCounts:
    """Return the number of partitions of every source, repartition and changelog topic; existing topics keep theirs.

    ``groups``: sets of topics that must have equally many partitions.

    Raises:
        ProtocolError: STREAMS_INVALID_TOPOLOGY, UNKNOWN_SERVER_ERROR.
        TopicConfigurationException: topics of a set cannot have equally many partitions.
    """
    counts = PartitionCounts(image)
    rows = list(topology.subtopologies.values())
    counts.decided.update(repartition_topic_counts(rows, counts))
    internal = [topic for row in rows for topic in row.repartition_source_topics]
    fixed = {topic.name: counts.require(topic.name) for topic in internal if topic.partitions != 0}
    flexible = {topic.name for topic in internal if topic.partitions == 0}
    for group in groups:
        counts.decided.update(enforce_copartitioning(group, fixed, flexible, counts))
    changelogs: dict[str, int] = {}
    for row in rows:
        most = max((counts.require(name) for name in source_topics(row)), default=None)
        if most is None:
            why = f"No source topics found for subtopology {row.subtopology_id}"
            raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
        changelogs.update((topic.name, most) for topic in row.state_changelog_topics)
    counts.decided.update(changelogs)
    return counts


def _internal_topic(topic: streams_group_records.TopicInfo, counts: PartitionCounts) -> ConfiguredInternalTopic:
    partitions = topic.partitions or counts.decided.get(topic.name, 0)
    configs = {config.key: config.value for config in topic.topic_configs}
    if partitions < 1 or len(configs) < len(topic.topic_configs):
        raise _unknown_server_error()
    return ConfiguredInternalTopic(topic.name, partitions, topic.replication_factor, tuple(configs.items()))


def _subtopology(row: streams_group_records.Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    sources = {topic.name: _internal_topic(topic, counts) for topic in row.repartition_source_topics}
    changelogs = {topic.name: _internal_topic(topic, counts) for topic in row.state_changelog_topics}
    if len(sources) < len(row.repartition_source_topics) or len(changelogs) < len(row.state_changelog_topics):
        raise _unknown_server_error()
    return ConfiguredSubtopology(
        max(counts.require(name) for name in source_topics(row)),
        frozenset(row.source_topics),
        sources,
        frozenset(row.repartition_sink_topics),
        changelogs,
    )


def _check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    tasks = sum(subtopology.task_count for subtopology in subtopologies.values())
    if tasks > MAX_STREAMS_TASKS:
        why = f"The topology has {tasks} tasks (at most {MAX_STREAMS_TASKS} are supported)."
        raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def _missing(
    topology: StreamsTopology, subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> dict[str, ConfiguredInternalTopic]:
    """Return the missing internal topics by name, and check the partition counts of the existing ones.

    Raises:
        TopicConfigurationException: an existing topic has another number of partitions than required.
    """
    needed: dict[str, ConfiguredInternalTopic] = {}
    for subtopology in subtopologies.values():
        needed.update(subtopology.repartition_source_topics)
        needed.update(subtopology.changelog_topics)
    for name in iteration_order.hash_map_order(topology.required_topics):
        there = image.topics.get(name)
        expected = needed.pop(name, None) if there is not None else None
        if there is not None and expected is not None and len(there.partitions) != expected.partitions:
            why = (
                f"Existing topic {name} has different number of partitions: expected {expected.partitions}, "
                f"found {len(there.partitions)}"
            )
            raise TopicConfigurationException(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, why)
    return needed
