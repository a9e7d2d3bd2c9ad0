"""Plan of a metadata publication: the actions for this node's partitions, from a delta. It executes none.

The actions are in the order of execution: removals precede creations of the same name, and open partitions are updated
before others are created. Each action concerns one partition, or the settings of topics; other tasks can run between
two.

Source: ``TopicsDelta.localChanges``, ``ReplicaManager.applyDelta`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, PartitionRegistration

TopicPartition = tuple[str, int]


class RemovePartition(NamedTuple):
    """Action that removes a partition which was deleted or reassigned, with its log."""

    topic_partition: TopicPartition


class UpdatePartition(NamedTuple):
    """Action that applies another leader, leader epoch, ISR or directory to a hosted partition."""

    topic_partition: TopicPartition
    state: PartitionRegistration


class CreatePartitionLog(NamedTuple):
    """Action that creates the log of a partition which this node does not host yet."""

    topic_partition: TopicPartition
    topic_id: bytes
    state: PartitionRegistration


class UpdateTopicConfig(NamedTuple):
    """Action that applies the changed settings of a topic; None: of all topics, after a change of broker settings."""

    topic: str | None


PartitionAction = RemovePartition | UpdatePartition | CreatePartitionLog | UpdateTopicConfig
TopicIdLookup = Callable[[TopicPartition], bytes | None]
"""Function that returns the topic id of a hosted partition; None if it is not hosted."""


def plan_actions(delta: MetadataDelta, node_id: int, id_of: TopicIdLookup) -> Iterator[PartitionAction]:
    """Yield the actions for a delta, lazily: ``id_of`` must reflect the actions yielded before."""
    for name, topic in delta.topics.items():
        yield from _removals(name, topic, node_id)
    later: list[CreatePartitionLog] = []
    for name, topic in delta.topics.items():
        yield from _updates(name, topic, node_id, id_of, later)
    yield from later
    yield from _config_updates(delta, node_id)


def _removals(name: str, topic: TopicDelta, node_id: int) -> Iterator[RemovePartition]:
    if topic.old is None:
        return
    if not topic.is_same_topic:
        for number, partition in topic.old.partitions.items():
            if node_id in partition.replicas:
                yield RemovePartition((name, number))
        return
    assert topic.new is not None
    for number in sorted(topic.partitions):
        before = topic.old.partitions.get(number)
        if before is not None and node_id in before.replicas and node_id not in topic.new.partitions[number].replicas:
            yield RemovePartition((name, number))


def _updates(
    name: str, topic: TopicDelta, node_id: int, id_of: TopicIdLookup, later: list[CreatePartitionLog]
) -> Iterator[UpdatePartition]:
    new = topic.new
    if new is None:
        return
    for number in sorted(topic.partitions):
        partition = new.partitions[number]
        if node_id not in partition.replicas:
            continue
        at = (name, number)
        if id_of(at) == new.id:
            yield UpdatePartition(at, partition)
        else:
            later.append(CreatePartitionLog(at, new.id, partition))


def _config_updates(delta: MetadataDelta, node_id: int) -> Iterator[UpdateTopicConfig]:
    if not delta.configs.isdisjoint({(RESOURCE_BROKER, ""), (RESOURCE_BROKER, str(node_id))}):
        yield UpdateTopicConfig(None)
        return
    for kind, name in sorted(delta.configs):
        topic = delta.topics.get(name)
        if kind == RESOURCE_TOPIC and (topic is None or topic.is_same_topic):
            yield UpdateTopicConfig(name)
