"""The next image while records are taken in, and what they touched.

Source: ``MetadataDelta.java`` and the deltas of its parts (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from immutables import MapMutation
from msgspec.structs import replace as changed_record

from ottla.controller.acl import rule_of
from ottla.controller.decision import PAUSE_EVERY, at_once, in_order
from ottla.controller.delta import Delta, TopicDelta
from ottla.controller.image import (
    NO_LEADER_CHANGE,
    RESOURCE_TOPIC,
    Image,
    Partition,
    Topic,
    changed,
    partition_of,
)
from ottla.controller.persistent import Changing, Numbered, as_map
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message

_TRIES = ("topics", "topic_names", "configs", "others", "acls")


class Draft:
    """Takes records; gives the image they make (`image`, at any time) and what they touched (`delta`)."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self._tries: dict[str, MapMutation[Any, Any]] = {}
        self._small: dict[str, dict[Any, Any]] = {}
        self._producer_ids = base.next_producer_id
        self._partitions: dict[str, Changing[Partition]] = {}
        """Of topics whose partitions changed since the last image was taken."""
        self._touched: dict[str, set[int]] = {}
        self._forgetting: Mapping[str, Topic] | None = None
        """The topics of when all were to forget their eligible leaders: done as one is touched, else with the image."""
        self._has_forgotten: set[str] = set()
        """Which of them need not any more."""
        self._configs: set[tuple[int, str]] = set()
        self._values: dict[tuple[int, str], dict[str, str]] = {}
        """Settings of resources that changed since the last image was taken."""
        self._brokers: set[int] = set()
        self._controllers: set[int] = set()
        self._others: set[tuple[Any, ...]] = set()
        self._features = False

    def _trie(self, name: str) -> MapMutation[Any, Any]:
        """One of the image's tries, to be changed."""
        if name not in self._tries:
            self._tries[name] = as_map(getattr(self.base, name)).mutate()
        return self._tries[name]

    def _copy(self, name: str) -> dict[Any, Any]:
        """One of the image's small maps, copied before its first change."""
        if name not in self._small:
            self._small[name] = dict(getattr(self.base, name))
        return self._small[name]

    def image(self, offset: int, epoch: int) -> Image:
        """The image as of ``offset``. More may be taken in afterwards; this image stays as it is."""
        return at_once(self.imaging(offset, epoch))

    def imaging(self, offset: int, epoch: int) -> Generator[None, None, Image]:
        """Make the image as of ``offset``; pauses after each hundred topics. Nothing is taken in meanwhile."""
        yield from self._forget_the_rest()
        for number, (name, partitions) in enumerate(self._partitions.items(), 1):
            topics = self._trie("topics")
            topics[name] = replace(topics[name], partitions=partitions.finished())
            if number % PAUSE_EVERY == 0:
                yield
        self._partitions.clear()
        self._values.clear()  # they are the image's from now on
        tries = {name: mutation.finish() for name, mutation in self._tries.items()}
        image = replace(
            self.base, offset=offset, epoch=epoch, next_producer_id=self._producer_ids, **tries, **self._small
        )
        self._tries = {name: trie.mutate() for name, trie in tries.items()}
        self._small = {name: dict(values) for name, values in self._small.items()}
        return image

    def delta(self, image: Image) -> Delta:
        """What was touched between the base and ``image``, the last one taken."""
        return at_once(self.comparing(image))

    def comparing(self, image: Image) -> Generator[None, None, Delta]:
        """Make the delta to ``image``; pauses after each hundred topics."""
        topics: dict[str, TopicDelta] = {}
        for number, (name, numbers) in enumerate(self._touched.items(), 1):
            if number % PAUSE_EVERY == 0:
                yield
            old, new = self.base.topics.get(name), image.topics.get(name)
            if new is None:
                numbers = set()
            elif old is None or old.id != new.id:
                numbers = set(new.partitions)
            if old is not None or new is not None:
                topics[name] = TopicDelta(old, new, frozenset(numbers))
        return Delta(
            topics,
            frozenset(self._configs),
            frozenset(self._brokers),
            frozenset(self._controllers),
            self._features,
            self._producer_ids is not self.base.next_producer_id,
            frozenset(self._others),
        )

    def take(self, record: Message) -> None:
        """Take in one record; one of an area we do not know changes nothing."""
        method = _TAKE.get(type(record))
        if method is not None:
            method(self, record)

    def _topic(self, record: m.TopicRecord) -> None:
        self._trie("topics")[record.name] = Topic(record.name, record.topic_id)
        self._trie("topic_names")[record.topic_id] = record.name
        self._partitions.pop(record.name, None)
        self._touched.setdefault(record.name, set())

    def _partitions_of(self, topic_id: bytes) -> tuple[Changing[Partition], set[int]] | None:
        """The partitions of a topic to be changed, and the numbers of those touched so far."""
        name = self._trie("topic_names").get(topic_id)
        if name is None:
            return None
        if self._forgetting is not None and name not in self._has_forgotten:
            at_once(self._forget_eligible(name))
        partitions = self._partitions.get(name)
        if partitions is None:
            known: Mapping[int, Partition] = self._trie("topics")[name].partitions
            numbered = known if isinstance(known, Numbered) else Numbered(known.items())
            partitions = self._partitions[name] = numbered.changing()
        return partitions, self._touched.setdefault(name, set())

    def _partition(self, record: m.PartitionRecord) -> None:
        found = self._partitions_of(record.topic_id)
        if found is not None:
            partitions, touched = found
            partitions[record.partition_id] = partition_of(record)
            touched.add(record.partition_id)

    def _partition_change(self, record: m.PartitionChangeRecord) -> None:
        found = self._partitions_of(record.topic_id)
        if found is not None:
            partitions, touched = found
            old = partitions.get(record.partition_id)
            if old is not None:
                partitions[record.partition_id] = changed(old, record)
                touched.add(record.partition_id)

    def _remove_topic(self, record: m.RemoveTopicRecord) -> None:
        name = self._trie("topic_names").pop(record.topic_id, None)
        if name is None:
            return
        del self._trie("topics")[name]
        self._partitions.pop(name, None)
        self._touched.setdefault(name, set())
        self._values.pop((RESOURCE_TOPIC, name), None)
        if self._trie("configs").pop((RESOURCE_TOPIC, name), None) is not None:
            self._configs.add((RESOURCE_TOPIC, name))

    def _clear_elr(self, record: m.ClearElrRecord) -> None:
        """A topic's partitions, or where none is named those of all, forget who may lead without being in sync."""
        if record.topic_name:
            at_once(self._forget_eligible(record.topic_name))
            return
        self._forgetting, self._has_forgotten = self._trie("topics").finish(), set()
        self._tries["topics"] = as_map(self._forgetting).mutate()

    def _forget_the_rest(self) -> Generator[None, None, None]:
        """What is still to be forgotten of all topics, in the order of their names."""
        if self._forgetting is None:
            return
        seen = 0
        for name in (yield from in_order(self._forgetting)):
            for _ in self._forget_eligible(name) if name not in self._has_forgotten else (None,):
                seen += 1
                if seen % PAUSE_EVERY == 0:
                    yield
        self._forgetting = None

    def _forget_eligible(self, name: str) -> Generator[None, None, None]:
        """What a topic's partitions are to forget; one step for each of them."""
        self._has_forgotten.add(name)
        topic, changing = self._trie("topics").get(name), self._partitions.get(name)
        if topic is None:
            return
        known = topic.partitions if changing is None else changing.finished()
        for number, p in known.items():
            if p.elr or p.last_known_elr:
                forgotten = m.PartitionChangeRecord(number, topic.id, leader=NO_LEADER_CHANGE)
                forgotten.eligible_leader_replicas, forgotten.last_known_elr = [], []
                self._partition_change(forgotten)
            yield

    def _config(self, record: m.ConfigRecord) -> None:
        at = (record.resource_type, record.resource_name)
        configs = self._trie("configs")
        values = self._values.get(at)
        if values is None:
            values = self._values[at] = dict(configs.get(at, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[at] = values
        else:
            configs.pop(at, None)
            del self._values[at]
        self._configs.add(at)

    def _feature(self, record: m.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._copy("features").pop(record.name, None)
        else:
            self._copy("features")[record.name] = record.feature_level
        self._features = True

    def _register_broker(self, record: m.RegisterBrokerRecord) -> None:
        self._copy("brokers")[record.broker_id] = record
        self._brokers.add(record.broker_id)

    def _change_broker(self, record: m.BrokerRegistrationChangeRecord) -> None:
        old = self._copy("brokers").get(record.broker_id)
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
        self._copy("brokers")[record.broker_id] = changed_record(old, **values)
        self._brokers.add(record.broker_id)

    def _unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        self._copy("brokers").pop(record.broker_id, None)
        self._brokers.add(record.broker_id)

    def _register_controller(self, record: m.RegisterControllerRecord) -> None:
        self._copy("controllers")[record.controller_id] = record
        self._controllers.add(record.controller_id)

    def _ids(self, record: m.ProducerIdsRecord) -> None:
        self._producer_ids = record

    def _carry(self, record: Message) -> None:
        about = _about(record)
        self._trie("others")[about] = record
        self._others.add(about)

    def _drop(self, record: Message) -> None:
        about = _about(record)
        self._trie("others").pop(about, None)
        self._others.add(about)

    def _acl(self, record: m.AccessControlEntryRecord) -> None:
        self._forget_rule(record)
        self._trie("acls")[rule_of(record)] = record.id
        self._carry(record)

    def _remove_acl(self, record: m.RemoveAccessControlEntryRecord) -> None:
        self._forget_rule(record)
        self._drop(record)

    def _forget_rule(self, record: m.AccessControlEntryRecord | m.RemoveAccessControlEntryRecord) -> None:
        """What stood under an id is no rule any more, unless another id has it too."""
        old = self._trie("others").get(_about(record))
        if old is not None and self._trie("acls").get(rule_of(old)) == record.id:
            del self._trie("acls")[rule_of(old)]

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
            entity = sorted(record.entity, key=lambda e: e.entity_type)  # it is a map: in no order
            return "quota", tuple((e.entity_type, e.entity_name) for e in entity), record.key
        case _:
            raise AssertionError(record)


_TAKE: dict[type[Message], Any] = {
    m.TopicRecord: Draft._topic,
    m.PartitionRecord: Draft._partition,
    m.PartitionChangeRecord: Draft._partition_change,
    m.RemoveTopicRecord: Draft._remove_topic,
    m.ClearElrRecord: Draft._clear_elr,
    m.ConfigRecord: Draft._config,
    m.FeatureLevelRecord: Draft._feature,
    m.RegisterBrokerRecord: Draft._register_broker,
    m.BrokerRegistrationChangeRecord: Draft._change_broker,
    m.UnregisterBrokerRecord: Draft._unregister_broker,
    m.RegisterControllerRecord: Draft._register_controller,
    m.ProducerIdsRecord: Draft._ids,
    m.AccessControlEntryRecord: Draft._acl,
    m.RemoveAccessControlEntryRecord: Draft._remove_acl,
    m.UserScramCredentialRecord: Draft._carry,
    m.RemoveUserScramCredentialRecord: Draft._drop,
    m.DelegationTokenRecord: Draft._carry,
    m.RemoveDelegationTokenRecord: Draft._drop,
    m.ClientQuotaRecord: Draft._quota,
}
