"""The metadata image: what the records of `__cluster_metadata` add up to, as one immutable value.

Brokers read an image; nobody changes one. A `Draft` takes records and gives the next image, copying only the maps
that were touched, so an older image stays whole: undoing uncommitted changes is keeping the old value.

Source: ``MetadataImage.java``, ``TopicsImage.java``, ``ClusterImage.java`` and their deltas (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message

NO_LEADER = -1
NO_LEADER_CHANGE = -2

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32


@dataclass(frozen=True, slots=True)
class Partition:
    """Where a partition's replicas are, who leads, who is in sync."""

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
class Topic:
    """A topic and its partitions by number."""

    name: str
    id: bytes
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class Image:
    """Everything the controller knows, as of ``offset`` (the last record taken in)."""

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, m.RegisterBrokerRecord] = field(default_factory=dict)
    controllers: Mapping[int, m.RegisterControllerRecord] = field(default_factory=dict)
    next_producer_id: m.ProducerIdsRecord | None = None
    others: Mapping[Any, Message] = field(default_factory=dict)
    """Records of areas we only carry along (ACLs, quotas, SCRAM, tokens), by what they are about."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with that id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a resource; defaults are not in it."""
        return self.configs.get((resource_type, name), {})

    def unfenced(self) -> list[int]:
        """Ids of the brokers that may lead, in order."""
        return sorted(i for i, b in self.brokers.items() if not b.fenced and not b.in_controlled_shutdown)


def partition_of(record: m.PartitionRecord) -> Partition:
    """A partition as its first record describes it."""
    return Partition(
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


def _pick(new: Iterable[Any] | None, old: tuple[Any, ...]) -> tuple[Any, ...]:
    return old if new is None else tuple(new)


def changed(old: Partition, record: m.PartitionChangeRecord) -> Partition:
    """A partition after a change record; absent fields keep what was (``PartitionRegistration.merge``)."""
    leader, epoch = old.leader, old.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, epoch = record.leader, old.leader_epoch + 1
    return Partition(
        _pick(record.replicas, old.replicas),
        _pick(record.isr, old.isr),
        leader,
        epoch,
        old.partition_epoch + 1,
        _pick(record.directories, old.directories),
        _pick(record.removing_replicas, old.removing),
        _pick(record.adding_replicas, old.adding),
        old.recovering if record.leader_recovery_state < 0 else record.leader_recovery_state,
        _pick(record.eligible_leader_replicas, old.elr),
        _pick(record.last_known_elr, old.last_known_elr),
    )


def partitions_of(image: Image, broker_id: int) -> Iterator[tuple[bytes, int, Partition]]:
    """The partitions a broker has a replica of: (topic id, number, partition)."""
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield topic.id, number, partition


class Draft:
    """The next image while records are being taken in."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self._maps: dict[str, dict[Any, Any]] = {}
        self._producer_ids = base.next_producer_id
        self._partitions: set[str] = set()

    def map(self, name: str) -> dict[Any, Any]:
        """One of the image's maps, copied before its first change."""
        if name not in self._maps:
            self._maps[name] = dict(getattr(self.base, name))
        return self._maps[name]

    def get(self, name: str) -> Mapping[Any, Any]:
        """One of the image's maps, to look at."""
        found: Mapping[Any, Any] = self._maps[name] if name in self._maps else getattr(self.base, name)
        return found

    def done(self, offset: int, epoch: int) -> Image:
        """The image as of ``offset``."""
        return replace(self.base, offset=offset, epoch=epoch, next_producer_id=self._producer_ids, **self._maps)

    def take(self, record: Message) -> None:
        """Take in one record; one of an area we do not know changes nothing."""
        method = _TAKE.get(type(record))
        if method is not None:
            method(self, record)

    def _topic(self, record: m.TopicRecord) -> None:
        self.map("topics")[record.name] = Topic(record.name, record.topic_id, {})
        self.map("topic_names")[record.topic_id] = record.name
        self._partitions.add(record.name)

    def _own_partitions(self, topic_id: bytes) -> dict[int, Partition] | None:
        """The partitions of a topic, copied before their first change."""
        name = self.get("topic_names").get(topic_id)
        if name is None:
            return None
        topics = self.map("topics")
        topic = topics[name]
        if name not in self._partitions:
            self._partitions.add(name)
            topic = topics[name] = Topic(name, topic_id, dict(topic.partitions))
        partitions: dict[int, Partition] = topic.partitions
        return partitions

    def _partition(self, record: m.PartitionRecord) -> None:
        partitions = self._own_partitions(record.topic_id)
        if partitions is not None:
            partitions[record.partition_id] = partition_of(record)

    def _partition_change(self, record: m.PartitionChangeRecord) -> None:
        partitions = self._own_partitions(record.topic_id)
        if partitions is not None and record.partition_id in partitions:
            partitions[record.partition_id] = changed(partitions[record.partition_id], record)

    def _remove_topic(self, record: m.RemoveTopicRecord) -> None:
        name = self.map("topic_names").pop(record.topic_id, None)
        if name is not None:
            del self.map("topics")[name]
            if (RESOURCE_TOPIC, name) in self.get("configs"):
                del self.map("configs")[RESOURCE_TOPIC, name]

    def _config(self, record: m.ConfigRecord) -> None:
        at = (record.resource_type, record.resource_name)
        values = dict(self.get("configs").get(at, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.map("configs")[at] = values
        else:
            self.map("configs").pop(at, None)

    def _feature(self, record: m.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.map("features").pop(record.name, None)
        else:
            self.map("features")[record.name] = record.feature_level

    def _register_broker(self, record: m.RegisterBrokerRecord) -> None:
        self.map("brokers")[record.broker_id] = record

    def _change_broker(self, record: m.BrokerRegistrationChangeRecord) -> None:
        old = self.get("brokers").get(record.broker_id)
        if old is None or old.broker_epoch != record.broker_epoch:
            return
        values: dict[str, Any] = {}
        if record.fenced:
            values["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            values["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            values["log_dirs"] = list(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            values["cordoned_log_dirs"] = list(record.cordoned_log_dirs)
        fields = {name: getattr(old, name) for name in old.__struct_fields__}
        self.map("brokers")[record.broker_id] = m.RegisterBrokerRecord(**{**fields, **values})

    def _unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        self.map("brokers").pop(record.broker_id, None)

    def _register_controller(self, record: m.RegisterControllerRecord) -> None:
        self.map("controllers")[record.controller_id] = record

    def _ids(self, record: m.ProducerIdsRecord) -> None:
        self._producer_ids = record

    def _carry(self, record: Message) -> None:
        self.map("others")[_about(record)] = record

    def _drop(self, record: Message) -> None:
        self.map("others").pop(_about(record), None)

    def _quota(self, record: m.ClientQuotaRecord) -> None:
        if record.remove:
            self._drop(record)
        else:
            self._carry(record)


def _about(record: Any) -> tuple[Any, ...]:
    """What a carried record is about: a later one about the same thing replaces or removes it."""
    match record:
        case m.AccessControlEntryRecord() | m.RemoveAccessControlEntryRecord():
            return "acl", record.id
        case m.UserScramCredentialRecord() | m.RemoveUserScramCredentialRecord():
            return "scram", record.name, record.mechanism
        case m.DelegationTokenRecord() | m.RemoveDelegationTokenRecord():
            return "token", record.token_id
        case m.ClientQuotaRecord():
            return "quota", tuple((e.entity_type, e.entity_name) for e in record.entity), record.key
        case _:
            raise AssertionError(record)


_TAKE: dict[type[Message], Any] = {
    m.TopicRecord: Draft._topic,
    m.PartitionRecord: Draft._partition,
    m.PartitionChangeRecord: Draft._partition_change,
    m.RemoveTopicRecord: Draft._remove_topic,
    m.ConfigRecord: Draft._config,
    m.FeatureLevelRecord: Draft._feature,
    m.RegisterBrokerRecord: Draft._register_broker,
    m.BrokerRegistrationChangeRecord: Draft._change_broker,
    m.UnregisterBrokerRecord: Draft._unregister_broker,
    m.RegisterControllerRecord: Draft._register_controller,
    m.ProducerIdsRecord: Draft._ids,
    m.AccessControlEntryRecord: Draft._carry,
    m.RemoveAccessControlEntryRecord: Draft._drop,
    m.UserScramCredentialRecord: Draft._carry,
    m.RemoveUserScramCredentialRecord: Draft._drop,
    m.DelegationTokenRecord: Draft._carry,
    m.RemoveDelegationTokenRecord: Draft._drop,
    m.ClientQuotaRecord: Draft._quota,
}


def records_of(image: Image) -> list[Message]:
    """The records that make this image from nothing, in the order Kafka's snapshots have them."""
    out: list[Message] = [m.FeatureLevelRecord(name, level) for name, level in _features_first(image.features)]
    out += image.brokers.values()
    out += image.controllers.values()
    for topic in image.topics.values():
        out.append(m.TopicRecord(topic.name, topic.id))
        out += (partition_record(topic.id, number, p) for number, p in sorted(topic.partitions.items()))
    for (kind, name), values in image.configs.items():
        out += (m.ConfigRecord(kind, name, key, value) for key, value in values.items())
    out += image.others.values()
    if image.next_producer_id is not None:
        out.append(image.next_producer_id)
    return out


def _features_first(features: Mapping[str, int]) -> list[tuple[str, int]]:
    """metadata.version leads: it decides how everything behind it is read."""
    return sorted(features.items(), key=lambda item: (item[0] != "metadata.version", item[0]))


def partition_record(topic_id: bytes, number: int, p: Partition) -> m.PartitionRecord:
    """The record that makes a partition as it is."""
    return m.PartitionRecord(
        number,
        topic_id,
        list(p.replicas),
        list(p.isr),
        list(p.removing),
        list(p.adding),
        p.leader,
        p.recovering,
        p.leader_epoch,
        p.partition_epoch,
        list(p.directories),
        list(p.elr) or None,
        list(p.last_known_elr) or None,
    )
