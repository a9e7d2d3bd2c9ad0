"""Metadata delta: named changes per record, and no other differences between images."""

from __future__ import annotations

import random

import pytest

from ottla.controller.metadata.delta import MetadataDelta, compare_images
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.codec.schema import Message
from ottla.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def partition(number: int, topic: int = 1) -> PartitionRecord:
    return PartitionRecord(number, topic_id(topic), [1], [1], [], [], 1, 0, 0, 0, [bytes(16)])


def after(base: MetadataImage, *records: Message) -> tuple[MetadataImage, MetadataDelta]:
    draft = ImageBuilder(base)
    for record in records:
        draft.replay(record)
    image = run_to_end(draft.image(base.offset + len(records), 1))
    return image, run_to_end(draft.delta(image))


BASE, _ = after(
    MetadataImage(),
    TopicRecord("t", topic_id(1)),
    *(partition(n) for n in range(3)),
    TopicRecord("u", topic_id(2)),
    partition(0, 2),
    ConfigRecord(RESOURCE_TOPIC, "t", "retention.ms", "5"),
    RegisterBrokerRecord(1, False, bytes(16), 7, [], [], None, True, False, [bytes(16)]),
    AccessControlEntryRecord(topic_id(9), 2, "x", 3, "User:a", "*", 3, 3),
    FeatureLevelRecord("group.version", 1),
    ProducerIdsRecord(1, 5, 1000),
)

ACL = ("acl", topic_id(9))
ROWS: list[tuple[list[Message], MetadataDelta]] = [
    ([], MetadataDelta()),
    ([ConfigRecord(RESOURCE_TOPIC, "t", "retention.ms", None)], MetadataDelta(configs=frozenset({(2, "t")}))),
    ([ConfigRecord(4, "", "x", "1")], MetadataDelta(configs=frozenset({(4, "")}))),
    ([FeatureLevelRecord("group.version", 0)], MetadataDelta(features=True)),
    ([ProducerIdsRecord(1, 5, 2000)], MetadataDelta(producer_ids=True)),
    ([BrokerRegistrationChangeRecord(1, 7, fenced=-1)], MetadataDelta(brokers=frozenset({1}))),
    ([BrokerRegistrationChangeRecord(1, 8, fenced=-1)], MetadataDelta()),
    ([BrokerRegistrationChangeRecord(2, 7, fenced=-1)], MetadataDelta()),
    ([UnregisterBrokerRecord(1, 7)], MetadataDelta(brokers=frozenset({1}))),
    ([RegisterControllerRecord(3, bytes(16), False, [], [])], MetadataDelta(controllers=frozenset({3}))),
    ([RemoveAccessControlEntryRecord(topic_id(9))], MetadataDelta(others=frozenset({ACL}))),
    ([ClientQuotaRecord([], "k", 1.0)], MetadataDelta(others=frozenset({("quota", (), "k")}))),
    ([ClientQuotaRecord([], "k", 1.0, True)], MetadataDelta(others=frozenset({("quota", (), "k")}))),
    ([NoOpRecord()], MetadataDelta()),
    ([partition(0, 77), PartitionChangeRecord(0, topic_id(77), leader=3)], MetadataDelta()),
]


@pytest.mark.parametrize(("records", "expected"), ROWS)
def test_delta_of_record_outside_topics_names_changed_part(records: list[Message], expected: MetadataDelta) -> None:
    image, delta = after(BASE, *records)
    assert delta == expected
    assert delta.is_empty == (expected == MetadataDelta())
    assert image.topics is BASE.topics or image.topics == BASE.topics


def image_of(*records: Message) -> MetadataImage:
    return after(MetadataImage(), *records)[0]


def test_compare_images_names_only_differences() -> None:
    """As when a snapshot replaces the log: equal content in other objects is no difference (R-235)."""
    old = BASE
    new, _ = after(
        image_of(
            TopicRecord("t", topic_id(1)),
            *(partition(n) for n in range(3)),
            TopicRecord("u", topic_id(3)),
            partition(0, 3),
            TopicRecord("v", topic_id(4)),
            ConfigRecord(RESOURCE_TOPIC, "v", "retention.ms", "5"),
            RegisterBrokerRecord(1, False, bytes(16), 8, [], [], None, True, False, [bytes(16)]),
            FeatureLevelRecord("group.version", 1),
            ProducerIdsRecord(1, 5, 1000),
        ),
        PartitionChangeRecord(1, topic_id(1), leader=2),
    )
    delta = run_to_end(compare_images(old, new))
    assert {n: (t.is_same_topic, set(t.partitions)) for n, t in delta.topics.items()} == {
        "t": (True, {1}),
        "u": (False, {0}),
        "v": (False, set()),
    }
    assert [t.name for t in delta.created_topics()] == ["u", "v"]
    assert delta.topics["u"].old is old.topics["u"]
    assert delta.configs == {(RESOURCE_TOPIC, "t"), (RESOURCE_TOPIC, "v")}
    assert (delta.brokers, delta.controllers, delta.others) == ({1}, set(), {ACL})
    assert not delta.features
    assert not delta.producer_ids
    assert run_to_end(compare_images(old, old)).is_empty
    gone = run_to_end(compare_images(old, MetadataImage()))
    assert sorted(t.name for t in gone.deleted_topics()) == ["t", "u"]
    assert gone.features
    assert gone.producer_ids


def touched_topics(base: MetadataImage, *records: Message) -> dict[str, tuple[bool, bool, set[int]]]:
    image, delta = after(base, *records)
    for name, topic in delta.topics.items():
        assert topic.old is base.topics.get(name)
        assert topic.new is image.topics.get(name)
    return {n: (t.old is not None, t.new is not None, set(t.partitions)) for n, t in delta.topics.items()}


def test_delta_of_changed_partition_contains_only_it() -> None:
    assert touched_topics(BASE, PartitionChangeRecord(1, topic_id(1), leader=-1)) == {"t": (True, True, {1})}


def test_delta_of_unknown_partition_contains_no_partition() -> None:
    assert touched_topics(BASE, PartitionChangeRecord(8, topic_id(1), leader=-1)) == {"t": (True, True, set())}


def test_delta_of_added_partition_contains_it() -> None:
    assert touched_topics(BASE, partition(3)) == {"t": (True, True, {3})}


def test_delta_of_new_topic_contains_all_its_partitions() -> None:
    assert touched_topics(BASE, TopicRecord("v", topic_id(3)), partition(0, 3), partition(1, 3)) == {
        "v": (False, True, {0, 1})
    }


def test_delta_of_removed_topic_contains_its_configs() -> None:
    image, delta = after(BASE, RemoveTopicRecord(topic_id(1)))
    assert [t.name for t in delta.deleted_topics()] == ["t"]
    assert not list(delta.created_topics())
    assert delta.topics["t"].partitions == frozenset()
    assert delta.configs == {(RESOURCE_TOPIC, "t")}
    assert set(image.topics) == {"u"}
    assert set(image.topic_names) == {topic_id(2)}
    assert not image.configs
    assert not after(BASE, RemoveTopicRecord(topic_id(2)))[1].configs


def test_delta_of_recreated_topic_has_deleted_and_created_topic() -> None:
    image, delta = after(BASE, RemoveTopicRecord(topic_id(1)), TopicRecord("t", topic_id(4)), partition(0, 4))
    assert [t.id for t in delta.deleted_topics()] == [topic_id(1)]
    assert [t.id for t in delta.created_topics()] == [topic_id(4)]
    assert delta.topics["t"].partitions == {0}
    assert not delta.topics["t"].is_same_topic
    assert list(image.topics["t"].partitions) == [0]


def test_delta_of_topic_created_and_removed_is_empty() -> None:
    _, delta = after(BASE, TopicRecord("v", topic_id(3)), partition(0, 3), RemoveTopicRecord(topic_id(3)))
    assert delta.is_empty


def test_image_builder_continues_after_an_image_was_built() -> None:
    draft = ImageBuilder(BASE)
    draft.replay(PartitionChangeRecord(0, topic_id(1), leader=-1))
    draft.replay(FeatureLevelRecord("share.version", 1))
    first = run_to_end(draft.image(50, 1))
    draft.replay(PartitionChangeRecord(2, topic_id(1), leader=-1))
    draft.replay(FeatureLevelRecord("share.version", 2))
    second = run_to_end(draft.image(51, 1))
    assert [p.leader for p in BASE.topics["t"].partitions.values()] == [1, 1, 1]
    assert [p.leader for p in first.topics["t"].partitions.values()] == [-1, 1, 1]
    assert [p.leader for p in second.topics["t"].partitions.values()] == [-1, 1, -1]
    assert (first.features["share.version"], second.features["share.version"]) == (1, 2)
    assert run_to_end(draft.delta(second)).topics["t"].partitions == {0, 2}
    assert second.topics["u"] is BASE.topics["u"]


def test_delta_from_empty_contains_all_metadata() -> None:
    delta = MetadataDelta.from_empty(BASE)
    numbers = {n: (t.old, set(t.partitions)) for n, t in delta.topics.items()}
    assert numbers == {
        "t": (None, {0, 1, 2}),
        "u": (None, {0}),
    }
    assert (delta.configs, delta.brokers, delta.controllers) == ({(2, "t")}, {1}, frozenset())
    assert (delta.features, delta.producer_ids, delta.others) == (True, True, {ACL})
    assert MetadataDelta.from_empty(MetadataImage()).is_empty


def _random_record(rng: random.Random) -> Message:
    topic = rng.randrange(1, 5)
    match rng.randrange(6):
        case 0:
            return TopicRecord(f"n{topic}", topic_id(topic))
        case 1:
            return RemoveTopicRecord(topic_id(topic))
        case 2:
            return ConfigRecord(RESOURCE_TOPIC, f"n{topic}", "a", rng.choice([None, "1", "2"]))
        case 3:
            return PartitionChangeRecord(rng.randrange(4), topic_id(topic), leader=rng.randrange(3))
        case _:
            return partition(rng.randrange(4), topic)


def test_delta_random_records_name_all_differences() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        base, _ = after(MetadataImage(), *(_random_record(rng) for _ in range(20)))
        kept = repr(base)
        image, delta = after(base, *(_random_record(rng) for _ in range(rng.randrange(8))))
        assert repr(base) == kept
        for name in {*base.topics, *image.topics}:
            old, new = base.topics.get(name), image.topics.get(name)
            if old != new:
                assert (delta.topics[name].old, delta.topics[name].new) == (old, new)
            if old is not None and new is not None and old.id == new.id:
                differ = {n for n, p in new.partitions.items() if old.partitions.get(n) != p}
                assert differ <= (delta.topics[name].partitions if differ else frozenset())
        for at in {*base.configs, *image.configs}:
            assert base.configs.get(at) == image.configs.get(at) or at in delta.configs


def test_compare_images_node_configs_are_always_named() -> None:
    """The content of a named certificate file may have changed without the config (KAFKA-14136)."""
    settings = [ConfigRecord(kind, "1", "k", "v") for kind in (RESOURCE_BROKER, RESOURCE_TOPIC)]
    image, _ = after(MetadataImage(), *settings)
    assert run_to_end(compare_images(image, image)).configs == {(RESOURCE_BROKER, "1")}
