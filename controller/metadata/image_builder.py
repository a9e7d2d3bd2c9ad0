"""Builder of the next metadata image from replayed records; it also tracks which objects they touched.

Source: ``MetadataDelta.java`` and the deltas of its parts (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from immutables import MapMutation
from msgspec.structs import replace as changed_record

from ottla.controller.metadata.acl import acl_from_record
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import (
    NO_LEADER_CHANGE,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    merge_partition_change,
    partition_from_record,
)
from ottla.controller.metadata.persistent_map import IntMapBuilder, PersistentIntMap, to_hash_trie
from ottla.jobs.job import Job, run_to_end
from ottla.jobs.sequences import YIELD_EVERY, sort_job
from ottla.wire.codec.schema import Message
from ottla.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

_TRIES = ("topics", "topic_names", "configs", "others", "acls")


class ImageBuilder:
    """Builder that replays records on the image ``base``; returns new images and the delta from base to image."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self._tries: dict[str, MapMutation[Any, Any]] = {}
        self._dicts: dict[str, dict[Any, Any]] = {}
        self._producer_ids = base.next_producer_id
        self._partitions: dict[str, IntMapBuilder[PartitionRegistration]] = {}
        """Partitions under change, of topics touched since the last `image`."""
        self._touched: dict[str, set[int]] = {}
        self._elr_reset_topics: Mapping[str, TopicImage] | None = None
        """Topics as of a ClearElrRecord for all topics; their ELRs are cleared when touched, else in `image`."""
        self._elr_reset_done: set[str] = set()
        """Names of topics whose ELRs are cleared already, or that need no clearing."""
        self._configs: set[tuple[int, str]] = set()
        self._values: dict[tuple[int, str], dict[str, str]] = {}
        """Settings of resources changed since the last `image`, by (resource type, name)."""
        self._brokers: set[int] = set()
        self._controllers: set[int] = set()
        self._others: set[tuple[Any, ...]] = set()
        self._features = False

    def _trie(self, name: str) -> MapMutation[Any, Any]:
        """Return the new image's mutable copy of one of the hash tries, such as ``topics``, made at the first call."""
        if name not in self._tries:
            self._tries[name] = to_hash_trie(getattr(self.base, name)).mutate()
        return self._tries[name]

    def _copy(self, name: str) -> dict[Any, Any]:
        """Return the new image's copy of a small map (brokers, controllers or features), made at the first change."""
        if name not in self._dicts:
            self._dicts[name] = dict(getattr(self.base, name))
        return self._dicts[name]

    def image(self, offset: int, epoch: int) -> Job[MetadataImage]:
        """Return the image with the records replayed so far, as of ``offset`` and ``epoch``, as a job.

        No record may be replayed while the job runs. Records may be replayed afterwards, without changing this image.
        """
        yield from self._reset_remaining_elr()
        for number, (name, partitions) in enumerate(self._partitions.items(), 1):
            topics = self._trie("topics")
            topics[name] = replace(topics[name], partitions=partitions.build())
            if number % YIELD_EVERY == 0:
                yield None
        self._partitions.clear()
        self._values.clear()  # they belong to the image from now on
        tries = {name: mutation.finish() for name, mutation in self._tries.items()}
        image = replace(
            self.base, offset=offset, epoch=epoch, next_producer_id=self._producer_ids, **tries, **self._dicts
        )
        self._tries = {name: trie.mutate() for name, trie in tries.items()}
        self._dicts = {name: dict(values) for name, values in self._dicts.items()}
        return image

    def delta(self, image: MetadataImage) -> Job[MetadataDelta]:
        """Return the objects touched between ``base`` and ``image``, which must be the last one built, as a job."""
        topics: dict[str, TopicDelta] = {}
        for number, (name, numbers) in enumerate(self._touched.items(), 1):
            if number % YIELD_EVERY == 0:
                yield None
            old, new = self.base.topics.get(name), image.topics.get(name)
            if new is None:
                numbers = set()
            elif old is None or old.id != new.id:
                numbers = set(new.partitions)
            if old is not None or new is not None:
                topics[name] = TopicDelta(old, new, frozenset(numbers))
        return MetadataDelta(
            topics,
            frozenset(self._configs),
            frozenset(self._brokers),
            frozenset(self._controllers),
            self._features,
            self._producer_ids is not self.base.next_producer_id,
            frozenset(self._others),
        )

    def replay(self, record: Message) -> None:
        """Replay a record into the next image; one of an unknown type has no effect.

        Nor has a change or removal of an unknown topic, partition or broker; settings are stored for any resource.
        """
        method = _REPLAY.get(type(record))
        if method is not None:
            method(self, record)

    def _topic(self, record: TopicRecord) -> None:
        self._trie("topics")[record.name] = TopicImage(record.name, record.topic_id)
        self._trie("topic_names")[record.topic_id] = record.name
        self._partitions.pop(record.name, None)
        self._touched.setdefault(record.name, set())

    def _partitions_of(self, topic_id: bytes) -> tuple[IntMapBuilder[PartitionRegistration], set[int]] | None:
        """Return a topic's partitions for changes and its touched partition numbers; None for an unknown topic id."""
        name = self._trie("topic_names").get(topic_id)
        if name is None:
            return None
        if self._elr_reset_topics is not None and name not in self._elr_reset_done:
            run_to_end(self._reset_topic_elr(name))
        partitions = self._partitions.get(name)
        if partitions is None:
            known: Mapping[int, PartitionRegistration] = self._trie("topics")[name].partitions
            numbered = known if isinstance(known, PersistentIntMap) else PersistentIntMap(known.items())
            partitions = self._partitions[name] = numbered.builder()
        return partitions, self._touched.setdefault(name, set())

    def _partition(self, record: PartitionRecord) -> None:
        found = self._partitions_of(record.topic_id)
        if found is not None:
            partitions, touched = found
            partitions[record.partition_id] = partition_from_record(record)
            touched.add(record.partition_id)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        found = self._partitions_of(record.topic_id)
        if found is not None:
            partitions, touched = found
            old = partitions.get(record.partition_id)
            if old is not None:
                partitions[record.partition_id] = merge_partition_change(old, record)
                touched.add(record.partition_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._trie("topic_names").pop(record.topic_id, None)
        if name is None:
            return
        del self._trie("topics")[name]
        self._partitions.pop(name, None)
        self._touched.setdefault(name, set())
        self._values.pop((RESOURCE_TOPIC, name), None)
        if self._trie("configs").pop((RESOURCE_TOPIC, name), None) is not None:
            self._configs.add((RESOURCE_TOPIC, name))

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of a topic's partitions, or of all topics (deferred to `image`)."""
        if record.topic_name:
            run_to_end(self._reset_topic_elr(record.topic_name))
            return
        self._elr_reset_topics, self._elr_reset_done = self._trie("topics").finish(), set()
        self._tries["topics"] = to_hash_trie(self._elr_reset_topics).mutate()

    def _reset_remaining_elr(self) -> Job[None]:
        """Clear the eligible leader replicas of the topics not yet cleared, in the order of names, as a job."""
        if self._elr_reset_topics is None:
            return
        seen = 0
        for name in (yield from sort_job(self._elr_reset_topics)):
            for _ in self._reset_topic_elr(name) if name not in self._elr_reset_done else (None,):
                seen += 1
                if seen % YIELD_EVERY == 0:
                    yield None
        self._elr_reset_topics = None

    def _reset_topic_elr(self, name: str) -> Job[None]:
        """Clear the eligible leader replicas of a topic's partitions, as a job that yields after each."""
        self._elr_reset_done.add(name)
        topic, changing = self._trie("topics").get(name), self._partitions.get(name)
        if topic is None:
            return
        known = topic.partitions if changing is None else changing.build()
        for number, p in known.items():
            if p.elr or p.last_known_elr:
                forgotten = PartitionChangeRecord(number, topic.id, leader=NO_LEADER_CHANGE)
                forgotten.eligible_leader_replicas, forgotten.last_known_elr = [], []
                self._partition_change(forgotten)
            yield None

    def _config(self, record: ConfigRecord) -> None:
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

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._copy("features").pop(record.name, None)
        else:
            self._copy("features")[record.name] = record.feature_level
        self._features = True

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._copy("brokers")[record.broker_id] = record
        self._brokers.add(record.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
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

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._copy("brokers").pop(record.broker_id, None)
        self._brokers.add(record.broker_id)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._copy("controllers")[record.controller_id] = record
        self._controllers.add(record.controller_id)

    def _producer_ids_record(self, record: ProducerIdsRecord) -> None:
        self._producer_ids = record

    def _store_other(self, record: Message) -> None:
        about = _other_record_key(record)
        self._trie("others")[about] = record
        self._others.add(about)

    def _remove_other(self, record: Message) -> None:
        about = _other_record_key(record)
        self._trie("others").pop(about, None)
        self._others.add(about)

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self._remove_acl_id(record)
        self._trie("acls")[acl_from_record(record)] = record.id
        self._store_other(record)

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self._remove_acl_id(record)
        self._remove_other(record)

    def _remove_acl_id(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        """Remove the ACL of an ACL id, unless another id has the same ACL."""
        old = self._trie("others").get(_other_record_key(record))
        if old is not None and self._trie("acls").get(acl_from_record(old)) == record.id:
            del self._trie("acls")[acl_from_record(old)]

    def _quota(self, record: ClientQuotaRecord) -> None:
        if record.remove:
            self._remove_other(record)
        else:
            self._store_other(record)


def _other_record_key(record: Any) -> tuple[Any, ...]:
    """Return the key in `MetadataImage.others` of an ACL, SCRAM, token or quota record, also of one that removes it.

    The tuple begins with ``acl``, ``scram``, ``token`` or ``quota``.
    """
    match record:
        case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
            return "acl", record.id
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            return "scram", record.name, record.mechanism
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            return "token", record.token_id
        case ClientQuotaRecord():
            entity = sorted(record.entity, key=lambda e: e.entity_type)  # the entity is a map, in any order
            return "quota", tuple((e.entity_type, e.entity_name) for e in entity), record.key
        case _:
            raise AssertionError(record)


_REPLAY: dict[type[Message], Any] = {
    TopicRecord: ImageBuilder._topic,
    PartitionRecord: ImageBuilder._partition,
    PartitionChangeRecord: ImageBuilder._partition_change,
    RemoveTopicRecord: ImageBuilder._remove_topic,
    ClearElrRecord: ImageBuilder._clear_elr,
    ConfigRecord: ImageBuilder._config,
    FeatureLevelRecord: ImageBuilder._feature,
    RegisterBrokerRecord: ImageBuilder._register_broker,
    BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    RegisterControllerRecord: ImageBuilder._register_controller,
    ProducerIdsRecord: ImageBuilder._producer_ids_record,
    AccessControlEntryRecord: ImageBuilder._acl,
    RemoveAccessControlEntryRecord: ImageBuilder._remove_acl,
    UserScramCredentialRecord: ImageBuilder._store_other,
    RemoveUserScramCredentialRecord: ImageBuilder._remove_other,
    DelegationTokenRecord: ImageBuilder._store_other,
    RemoveDelegationTokenRecord: ImageBuilder._remove_other,
    ClientQuotaRecord: ImageBuilder._quota,
}
