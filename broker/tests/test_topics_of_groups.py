"""The hash of a group's topics, with what Kafka's own jar gave."""

from __future__ import annotations

from ottla.broker.groups.topics import Topics, topic_hash
from ottla.controller.image import Image, Partition, Topic
from ottla.wire.messages import metadata_records as m

ID = bytes.fromhex("01020304050607081112131415161718")
LED = Partition((), (), 1, 1, 1)
GOLDEN = Topic("hdr", bytes.fromhex("b48235543cbf436689c81c69b394297a"), {0: LED})


def test_a_topics_hash_is_kafkas() -> None:
    """181, 182."""
    assert topic_hash(Topic("foo", ID, {0: LED, 1: LED}), Image()) == -5630655083796711550
    brokers = {n: m.RegisterBrokerRecord(n, rack=rack) for n, rack in ((1, "ra"), (2, "rb"), (3, None))}
    placed = Partition((2, 1, 3, 9), (), 1, 1, 1)
    assert topic_hash(Topic("foo", ID, {0: placed}), Image(brokers=brokers)) == 3865008404773448353
    assert topic_hash(GOLDEN, Image()) == -6535517012970506958


def test_a_groups_hash_is_kafkas_and_topics_that_are_not_there_do_not_count() -> None:
    """181, 182."""
    topics = Topics(Image(topics={"hdr": GOLDEN}))
    assert topics.hash_of(["zzz", "hdr", "a"]) == -2448637757693629361
    assert topics.hash_of(["zzz"]) == topics.hash_of([]) == 0


def test_a_hash_is_kept_until_its_topic_is_touched() -> None:
    topics = Topics(Image(topics={"hdr": GOLDEN}))
    before = topics.hash_of(["hdr"])
    grown = Image(7, topics={"hdr": Topic("hdr", GOLDEN.id, {0: LED, 1: LED})})
    topics.follow(grown, [], has_new=False)
    assert (topics.hash_of(["hdr"]), topics.new_topics_at) == (before, -1)
    topics.follow(grown, ["hdr"], has_new=True)
    assert topics.hash_of(["hdr"]) != before
    assert topics.new_topics_at == 7
