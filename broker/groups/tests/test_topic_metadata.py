"""Hash of a group's topics, compared with values of Kafka's jar."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.groups import topic_metadata as looked_at
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.consumer.regex_subscriptions import NAMES_PER_STEP
from ottla.broker.groups.consumer.tests.test_hostile_members import stored
from ottla.broker.groups.share.heartbeat import heartbeat
from ottla.broker.groups.topic_metadata import MAX_HASHED_PER_SLICE, GroupTopicMetadata, topic_hash
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.jobs.state_machine import Effects
from ottla.wire.messages import (
    consumer_group_heartbeat,
    consumer_group_records,
    metadata_records,
    share_group_heartbeat,
)

ID = bytes.fromhex("01020304050607081112131415161718")
LED = PartitionRegistration((), (), 1, 1, 1)
GOLDEN = TopicImage("hdr", bytes.fromhex("b48235543cbf436689c81c69b394297a"), {0: LED})


@pytest.mark.behaviour("C-181", "C-182")
def test_topic_hash_equals_kafka() -> None:
    assert topic_hash(TopicImage("foo", ID, {0: LED, 1: LED}), MetadataImage()) == -5630655083796711550
    brokers = {n: metadata_records.RegisterBrokerRecord(n, rack=rack) for n, rack in ((1, "ra"), (2, "rb"), (3, None))}
    placed = PartitionRegistration((2, 1, 3, 9), (), 1, 1, 1)
    assert topic_hash(TopicImage("foo", ID, {0: placed}), MetadataImage(brokers=brokers)) == 3865008404773448353
    assert topic_hash(GOLDEN, MetadataImage()) == -6535517012970506958


@pytest.mark.behaviour("C-181", "C-182")
def test_group_hash_equals_kafka_and_ignores_missing_topics() -> None:
    topics = GroupTopicMetadata(MetadataImage(topics={"hdr": GOLDEN}))
    assert topics.hash_of(["zzz", "hdr", "a"]) == -2448637757693629361
    assert topics.hash_of(["zzz"]) == topics.hash_of([]) == 0


def test_topic_hash_is_cached_until_topic_changes() -> None:
    topics = GroupTopicMetadata(MetadataImage(topics={"hdr": GOLDEN}))
    before = topics.hash_of(["hdr"])
    grown = MetadataImage(7, topics={"hdr": TopicImage("hdr", GOLDEN.id, {0: LED, 1: LED})})
    topics.on_metadata_changed(grown, [], has_new=False)
    assert (topics.hash_of(["hdr"]), topics.last_new_topic_offset) == (before, -1)
    topics.on_metadata_changed(grown, ["hdr"], has_new=True)
    assert topics.hash_of(["hdr"]) != before
    assert topics.last_new_topic_offset == 7


class TopicHashCounter:
    """Counts computed topic hashes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(looked_at, "topic_hash", self._look)

    def _look(self, topic: TopicImage, image: MetadataImage) -> int:
        self.count += 1
        return topic_hash(topic, image)

    def in_turns(self, fx: Effects[Any]) -> list[int]:
        """Return the number of hashes in the first slice and in each further one."""
        out = [self.count]
        for part in fx.continuation or ():
            out.append(self.count - sum(out))
            fx.records += part.records if part is not None else []
        return out


MANY = {f"t{number}": 1 for number in range(3 * MAX_HASHED_PER_SLICE + 1)}


def test_consumer_group_join_hashes_many_topics_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard(MANY)
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", 0, None, None, 30_000, [*MANY], None, None, []
    )
    fx = shard.machine.handle(shard.now, GroupRequest("a", joins, 1, "c", "10.0.0.1"))
    counts = looks.in_turns(fx)
    assert (max(counts), sum(counts)) == (MAX_HASHED_PER_SLICE, len(MANY))
    names = [type(record.key).__name__ for record in fx.records]
    assert names[:2] == ["ConsumerGroupMemberMetadataKey", "ConsumerGroupMetadataKey"]
    (reply,) = fx.replies
    assert sum(len(row.partitions) for row in reply.message.assignment.topic_partitions) == len(MANY)


def test_share_group_join_hashes_many_topics_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard(MANY)
    joins = GroupRequest(
        None, share_group_heartbeat.ShareGroupHeartbeatRequest("s", "a", 0, None, [*MANY]), 1, "c", "10.0.0.1"
    )
    fx = heartbeat(shard.machine.share_groups, "ticket", shard.now, call=joins)
    counts = looks.in_turns(fx)
    assert (max(counts), sum(counts)) == (MAX_HASHED_PER_SLICE, len(MANY))
    assert [type(record.key).__name__ for record in fx.records][:2] == [
        "ShareGroupMemberMetadataKey",
        "ShareGroupMetadataKey",
    ]


def test_regex_search_hashes_matching_topics_in_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard(MANY)
    shard.heartbeat("a", 0, subscribed_topic_regex="t.*")
    counts = [looks.count]
    while shard.machine.consumer_groups.regex_searches:
        shard.apply(shard.machine.handle(shard.now, TimerExpired(("consumer-regex", "g"))))
        counts.append(looks.count - sum(counts))
    assert (max(counts), sum(counts)) == (NAMES_PER_STEP, len(MANY))
    assert len(shard.consumer.resolved_regexes["t.*"].topics) == len(MANY)


@pytest.mark.parametrize("leaves", [True, False])
def test_member_removal_after_restart_hashes_topics_in_slices(monkeypatch: pytest.MonkeyPatch, leaves: bool) -> None:
    shard = ConsumerGroupShard(MANY)
    shard.heartbeat("a", 0, subscribed_topic_names=[*MANY])
    shard.heartbeat("b", 0, subscribed_topic_names=[*MANY])
    again, looks = shard.restart(), TopicHashCounter(monkeypatch)
    goes: Any = TimerExpired(("consumer-session", "g", "a"))
    if leaves:
        goes = GroupRequest(
            "a", consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "a", -1), 1, "c", "10.0.0.1"
        )
    fx = again.machine.handle(again.now, goes)
    counts = looks.in_turns(fx)
    assert (max(counts), sum(counts)) == (MAX_HASHED_PER_SLICE, len(MANY))
    epoch = next(r.value for r in fx.records if isinstance(r.key, consumer_group_records.ConsumerGroupMetadataKey))
    assert epoch.epoch == shard.consumer.epoch + 1
    assert epoch.metadata_hash == shard.consumer.metadata_hash


def test_share_member_removal_after_restart_hashes_topics_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = ConsumerGroupShard(MANY)
    for name in ("a", "b"):
        joins = GroupRequest(
            None, share_group_heartbeat.ShareGroupHeartbeatRequest("s", name, 0, None, [*MANY]), 1, "c", "10.0.0.1"
        )
        shard.apply(heartbeat(shard.machine.share_groups, name, shard.now, call=joins))
    again, looks = shard.restart(), TopicHashCounter(monkeypatch)
    before = again.machine.share_groups.groups["s"]
    fx = again.machine.handle(again.now, TimerExpired(("share-session", "s", "a")))
    counts = looks.in_turns(fx)
    assert (max(counts), sum(counts)) == (MAX_HASHED_PER_SLICE, len(MANY))
    assert (fx.records[-1].value.epoch, fx.records[-1].value.metadata_hash) == (before.epoch + 1, before.metadata_hash)


def test_upgrade_of_classic_group_hashes_topics_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard(MANY)
    stored(shard, *([] for _ in range(100)), topics=(*MANY,))
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "new", 0, None, None, 30_000, [*MANY], None, None, []
    )
    counts = looks.in_turns(shard.machine.handle(shard.now, GroupRequest("a", joins, 1, "c", "10.0.0.1")))
    assert (max(counts), sum(counts)) == (MAX_HASHED_PER_SLICE, len(MANY))


def test_topics_with_many_partitions_fill_a_slice_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {f"t{number}": 80 for number in range(100)}
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard(wide)
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", 0, None, None, 30_000, [*wide], None, None, []
    )
    counts = looks.in_turns(shard.machine.handle(shard.now, GroupRequest("a", joins, 1, "c", "10.0.0.1")))
    assert max(counts) < 50, "8,000 partitions are not one turn's work"
    assert sum(counts) == len(wide)


def test_few_topics_are_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, shard = TopicHashCounter(monkeypatch), ConsumerGroupShard({"t": 3})
    shard.heartbeat("a", 0)
    assert looks.count == 1
    assert shard.records() == ["5a", "3", "7a", "6", "8a"]
