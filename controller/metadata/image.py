"""Metadata image: the state of all records of ``__cluster_metadata`` but control records, as one immutable value.

Images are never changed. An `ImageBuilder` replays records and builds the next image, which shares unchanged parts with
the old one: uncommitted changes are discarded by using the older image again.

Source: ``MetadataImage.java``, ``TopicsImage.java``, ``ClusterImage.java`` and their deltas (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from immutables import Map

from ottla.controller.metadata.acl import StandardAcl
from ottla.controller.metadata.persistent_map import PersistentIntMap
from ottla.jobs.sequences import sort_job
from ottla.wire.codec.schema import Message
from ottla.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """State of a partition in the metadata: replicas, ISR, leader, epochs, directories, reassignment and ELR.

    Members are broker ids. ``leader``: -1 for none. ``directories``: log directory id of each of ``replicas``; empty if
    unknown. ``removing``, ``adding``: replicas of a reassignment. ``recovering``: 1 after an unclean election.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovering: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """Topic with its name, id, and partitions by number."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration] = field(default_factory=PersistentIntMap)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Metadata as of ``offset``, the offset of the last replayed record (-1: none), and its leader ``epoch``.

    Keys of ``topics`` are names, of ``topic_names`` topic ids, of ``configs`` (resource type, name), of ``brokers`` and
    ``controllers`` node ids. Large mappings are tries (`persistent_map`); brokers, controllers and features are few and
    copied.
    """

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=Map)
    topic_names: Mapping[bytes, str] = field(default_factory=Map)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=Map)
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, RegisterBrokerRecord] = field(default_factory=dict)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    next_producer_id: ProducerIdsRecord | None = None
    others: Mapping[Any, Message] = field(default_factory=Map)
    """Records of ACLs, client quotas, SCRAM credentials and delegation tokens, by the key of the object."""
    acls: Mapping[StandardAcl, bytes] = field(default_factory=Map)
    """ACLs among these records, with their ids."""

    def broker_address(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return host and port of a broker's listener; None if it is not registered or has no listener of that name."""
        known = self.brokers.get(broker_id)
        ends = () if known is None else known.end_points
        return next(((end.host, end.port) for end in ends if end.name == listener), None)

    def unfenced_broker_address(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return host and port of a broker's listener as `broker_address`; None also if the broker is fenced."""
        known = self.brokers.get(broker_id)
        return None if known is None or known.fenced else self.broker_address(broker_id, listener)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic with a topic id (16 bytes); None if there is none."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the explicitly set configs of a resource, without defaults; empty if there are none."""
        return self.configs.get((resource_type, name), {})

    def unfenced_brokers(self) -> list[int]:
        """Return the ids of the brokers neither fenced nor in controlled shutdown, in ascending order."""
        return sorted(i for i, b in self.brokers.items() if not b.fenced and not b.in_controlled_shutdown)


def partition_from_record(record: PartitionRecord) -> PartitionRegistration:
    """Return the state that a PartitionRecord of the metadata log gives to a partition."""
    return PartitionRegistration(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.directories),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


def _replaced_or_kept(new: Iterable[Any] | None, old: tuple[Any, ...]) -> tuple[Any, ...]:
    return old if new is None else tuple(new)


def merge_partition_change(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Return a partition after a change record; fields that are absent there stay (``PartitionRegistration.merge``).

    The partition epoch grows by one, and the leader epoch if the record has a leader, even the same.
    """
    leader, epoch = old.leader, old.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, epoch = record.leader, old.leader_epoch + 1
    return PartitionRegistration(
        _replaced_or_kept(record.replicas, old.replicas),
        _replaced_or_kept(record.isr, old.isr),
        leader,
        epoch,
        old.partition_epoch + 1,
        _replaced_or_kept(record.directories, old.directories),
        _replaced_or_kept(record.removing_replicas, old.removing),
        _replaced_or_kept(record.adding_replicas, old.adding),
        old.recovering if record.leader_recovery_state < 0 else record.leader_recovery_state,
        _replaced_or_kept(record.eligible_leader_replicas, old.elr),
        _replaced_or_kept(record.last_known_elr, old.last_known_elr),
    )


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Return an iterator over the records that create this image from an empty one, in the order of Kafka's snapshots.

    Sorted by name or number, since the order of tries differs between processes, and the files must be equal.
    """
    return (record for record in image_records_yielding(image) if record is not None)


def image_records_yielding(image: MetadataImage) -> Iterator[Any]:
    """Yield the records of `image_records`, and None to let other tasks run: sorting many names takes long."""
    for name, level in _features_first(image.features):
        yield FeatureLevelRecord(name, level)
    yield from (image.brokers[number] for number in sorted(image.brokers))
    yield from (image.controllers[number] for number in sorted(image.controllers))
    for topic_name in (yield from sort_job(image.topics)):
        topic = image.topics[topic_name]
        yield TopicRecord(topic.name, topic.id)
        for number, p in topic.partitions.items():
            yield partition_record(topic.id, number, p)
    for kind, name in (yield from sort_job(image.configs)):
        for key, value in image.configs[kind, name].items():
            yield ConfigRecord(kind, name, key, value)
    for about in (yield from sort_job(image.others, repr)):
        yield image.others[about]
    if image.next_producer_id is not None:
        yield image.next_producer_id


def _features_first(features: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return (name, level) of the features, metadata.version first: it determines the format of later records."""
    return sorted(features.items(), key=lambda item: (item[0] != "metadata.version", item[0]))


def partition_record(topic_id: bytes, number: int, registration: PartitionRegistration) -> PartitionRecord:
    """Return the PartitionRecord that creates a partition in its current state."""
    return PartitionRecord(
        number,
        topic_id,
        list(registration.replicas),
        list(registration.isr),
        list(registration.removing),
        list(registration.adding),
        registration.leader,
        registration.recovering,
        registration.leader_epoch,
        registration.partition_epoch,
        list(registration.directories),
        list(registration.elr) or None,
        list(registration.last_known_elr) or None,
    )
