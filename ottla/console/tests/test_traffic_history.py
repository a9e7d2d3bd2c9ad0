"""Recent rates of topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replication.hosted_partition import TopicTraffic
from ottla.console.traffic_history import TopicRates, TrafficHistory


class TrafficFixture:
    """History of a node with a clock and counters that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0
        self.traffic: dict[str, TopicTraffic] = {}
        replicas: Any = SimpleNamespace(
            removed_traffic=TopicTraffic(), unknown_traffic=TopicTraffic(), traffic=self.traffic
        )
        env: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.history = TrafficHistory(env, replicas)

    def count(self, after_s: float) -> None:
        self.now_ms += after_s * 1000
        for _ in self.history.count_topics():
            pass

    def produce(self, topic: str, messages: int, size: int) -> None:
        traffic = self.traffic.setdefault(topic, TopicTraffic())
        traffic.messages_in += messages
        traffic.bytes_in += size


@pytest.fixture
def node() -> TrafficFixture:
    return TrafficFixture()


def test_rates_of_a_topic_cover_the_last_two_copies_of_its_counters(node: TrafficFixture) -> None:
    node.produce("orders", 100, 1000)
    node.count(10)
    assert node.history.topic_rates("orders") == TopicRates(10, 100), "since the start"
    node.count(10)
    assert node.history.topic_rates("orders") == TopicRates(0, 0), "the first copy has all records"
    node.produce("orders", 30, 600)
    node.now_ms += 5000
    assert node.history.topic_rates("orders") == TopicRates(2, 40)
    node.count(5)
    assert node.history.topic_rates("orders") == TopicRates(3, 60)
    node.count(10)
    assert node.history.topic_rates("orders") == TopicRates(0, 0), "the oldest copy is no longer used"


def test_rates_just_after_the_start_are_those_of_two_seconds(node: TrafficFixture) -> None:
    node.produce("orders", 10, 100)
    node.now_ms += 1
    assert node.history.topic_rates("orders") == TopicRates(5, 50)


def test_rates_of_a_topic_that_was_created_anew_start_with_zero(node: TrafficFixture) -> None:
    node.produce("orders", 100, 1000)
    node.count(10)
    node.count(10)
    del node.traffic["orders"]
    node.produce("orders", 40, 400)
    assert node.history.topic_rates("orders") == TopicRates(4, 40)


def test_topic_that_the_node_does_not_host_has_no_rates(node: TrafficFixture) -> None:
    assert node.history.topic_rates("absent") is None


def test_counters_of_a_topic_are_copied_in_steps_while_topics_are_removed(node: TrafficFixture) -> None:
    for number in range(3):
        node.produce(f"t{number}", 10, 10)
    steps = node.history.count_topics()
    next(steps)
    del node.traffic["t2"]
    assert sum(1 for _ in steps) == 2
