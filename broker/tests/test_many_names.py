"""A member may name very many topics, most of which there are not: what is counted of them, and what it costs."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from ottla.broker.groups import java_order
from ottla.broker.groups.consumer.state import Names, Subscribers, count_names
from ottla.broker.groups.state import Call
from ottla.broker.groups.topics import Topics
from ottla.broker.tests.consumer_stage import Shard, image_of
from ottla.wire.messages import consumer_group_heartbeat as hb

MANY = 2_000


def one_by_one(names: Names, topics: frozenset[str], by_name: int, by_regex: int) -> None:
    for topic in topics:
        old = names.get(topic, Subscribers())
        new = Subscribers(old.by_name + by_name, old.by_regex + by_regex)
        if new.by_name <= 0 and new.by_regex <= 0:
            names.pop(topic, None)
        else:
            names[topic] = new


@pytest.mark.parametrize("seed", range(20))
def test_topics_are_counted_together_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    ours: Names = {}
    theirs: Names = {}
    for _ in range(100):
        some = frozenset(rng.choices("abcdefgh", k=rng.randint(0, 6)))
        by = rng.choice([(1, 0), (-1, 0), (0, 1), (0, -1)])
        count_names(ours, some, *by)
        one_by_one(theirs, some, *by)
        assert ours == theirs


@pytest.mark.parametrize("names", [["b", "a", "B"], ["\u00e9", "e", "f"], ["\uffff", "\U00010000", "a"], []])
def test_texts_are_sorted_as_java_sorts_them(names: list[str]) -> None:
    assert java_order.sorted_texts(names) == sorted(names, key=lambda text: text.encode("utf-16-be"))


@pytest.mark.parametrize("more", [0, 50])
def test_the_hash_of_topics_does_not_hang_on_names_there_are_none_for(more: int) -> None:
    topics = Topics(image_of({"t": 3, "u": 1, "v": 2}))
    wanted = frozenset(["t", "u", *(f"none-{number}" for number in range(more))])
    assert topics.hash_of(wanted) == topics.hash_of(["u", "t"])
    assert set(topics.ids(wanted)) == set(topics.ids(["t", "u"]))
    assert topics.size_of(wanted) == 4


def calls_of(work: Any) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_name_costs_no_call_of_python_when_it_is_decided_on_nor_when_it_is_replayed() -> None:
    Shard().heartbeat("a", 0)  # what is loaded with the first
    shard = Shard()
    names = ["t", *(f"none-{number}" for number in range(MANY))]
    joins = hb.ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 30_000, names, None, None, [])
    out: list[Any] = []
    assert calls_of(lambda: out.append(shard.machine.handle(1, Call("x", joins, 1, "c", "h")))) < MANY // 4
    assert calls_of(lambda: [shard.machine.replay(0, record) for record in out[0].records]) < MANY // 4
    assert len(shard.consumer.names) == MANY + 1
    member = shard.consumer.members["a"]
    again = hb.ConsumerGroupHeartbeatRequest("g", "a", member.epoch, subscribed_topic_names=names[::-1])
    assert calls_of(lambda: out.append(shard.machine.handle(1, Call("x", again, 1, "c", "h")))) < MANY // 4
    assert not out[1].records
    shard.heartbeat("a", -1)
    assert shard.consumer.names == {}
