"""Fast path for heartbeats without a change: its result must equal that of the full path."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import heartbeat as beats
from ottla.broker.groups.consumer.tests.test_random_members import RandomConsumerGroupHistory
from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    ConsumerMemberClient,
    reconcile_members,
    two_reconciled_members,
)
from ottla.controller.metadata.image import RESOURCE_GROUP
from ottla.wire.messages import consumer_group_heartbeat

short = beats.answer_unchanged_heartbeat


class ComparedHeartbeats:
    """Runs the full path beside the fast path on every heartbeat the fast path takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.seen = 0
        monkeypatch.setattr(beats, "answer_unchanged_heartbeat", self)

    def __call__(self, groups: Any, call: GroupRequest, response: Any, now_ms: int, fx: GroupEffects) -> bool:
        self.seen += 1
        if not short(groups, call, response, now_ms, fx):
            assert not fx.timers
            return False
        self.taken += 1
        other = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse()
        more = GroupEffects()
        beats._ConsumerHeartbeat(groups, call, other, now_ms, more).run()
        assert (response, fx.timers, fx.records, fx.continuation) == (
            other,
            more.timers,
            more.records,
            more.continuation,
        )
        assert not more.records
        return True


@pytest.mark.parametrize("seed", range(100, 112))
def test_fast_path_result_equals_full_path(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both, history = ComparedHeartbeats(monkeypatch), RandomConsumerGroupHistory(seed)
    if seed % 3:
        monkeypatch.setattr(history, "wishes", lambda: {"subscribed_topic_names": ["a1", "b1"]})
    for _ in range(120):
        history.step()
    history.stop_faults()
    assert both.seen > both.taken
    assert both.taken > 10 or not seed % 3


def is_short(shard: ConsumerGroupShard, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> bool:
    both = ComparedHeartbeats(monkeypatch)
    epoch = fields.pop("epoch", shard.consumer.members["a"].epoch)
    more = {name: fields.pop(name) for name in ("client_id", "client_host") if name in fields}
    shard.call(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "a", epoch, **fields), **more)
    return both.taken == 1


def test_unchanged_heartbeat_of_stable_member_takes_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, a, _ = two_reconciled_members()
    assert is_short(shard, monkeypatch)
    assert is_short(shard, monkeypatch, topic_partitions=a.topic_partitions())


FURTHER_FIELDS = [
    {"epoch": 0, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []},
    {"epoch": 1},
    {"epoch": 99},
    {"epoch": -1},
    {"epoch": -2},
    {"subscribed_topic_names": ["t"]},
    {"subscribed_topic_regex": "t"},
    {"instance_id": "i"},
    {"rack_id": "r"},
    {"server_assignor": "range"},
    {"rebalance_timeout_ms": 31_000},
    {"client_id": "d"},
    {"client_host": "10.0.0.2"},
]


@pytest.mark.parametrize("fields", FURTHER_FIELDS)
def test_heartbeat_with_further_fields_takes_full_path(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _, _ = two_reconciled_members()
    assert not is_short(shard, monkeypatch, **fields)


def test_unchanged_heartbeat_of_stable_static_member_takes_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _, _ = two_reconciled_members()
    shard.heartbeat("b", -1)
    a, b = ConsumerMemberClient(shard, "a", instance_id="i"), ConsumerMemberClient(shard, "b", instance_id="j")
    shard.heartbeat("a", -1)
    reconcile_members(a, b)
    assert is_short(shard, monkeypatch, instance_id="i")
    assert not is_short(shard, monkeypatch, instance_id="j")


def test_heartbeat_with_news_for_the_member_takes_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _, _ = two_reconciled_members()
    shard.image({"t": 8})  # its topic has more partitions
    assert not is_short(shard, monkeypatch)
    shard, _, _ = two_reconciled_members()
    shard.heartbeat("b", -1)  # a member has left
    assert not is_short(shard, monkeypatch)
    shard, a, _ = two_reconciled_members()
    shard.heartbeat("c", 0)  # a member has joined, and a has partitions to revoke
    a.beat(topic_partitions=None)
    assert shard.consumer.members["a"].revoking
    assert not is_short(shard, monkeypatch)


def test_heartbeat_in_group_with_regexes_takes_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _, _ = two_reconciled_members()
    shard.heartbeat("c", 0, subscribed_topic_regex="t.*", subscribed_topic_names=[])
    assert shard.consumer.subscribed_regex_counts
    assert not is_short(shard, monkeypatch)


def test_fast_path_uses_group_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _, _ = two_reconciled_members()
    shard.image(shard.topics, consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="7000")
    assert shard.machine.consumer_groups.topics.image.config(RESOURCE_GROUP, "g")
    shard.heartbeat("a", shard.consumer.members["a"].epoch)  # looks at the topics that were touched
    answer = shard.heartbeat("a", shard.consumer.members["a"].epoch)
    assert is_short(shard, monkeypatch)
    assert answer.heartbeat_interval_ms == 7_000


def test_unchanged_heartbeat_costs_at_most_40_calls() -> None:
    """Heartbeats are frequent: their cost must not grow with the size of the group or of the member."""
    shard, _, _ = two_reconciled_members()
    epoch = shard.consumer.members["a"].epoch
    call = GroupRequest(
        "x", consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "a", epoch), 1, "c", "10.0.0.1"
    )
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        shard.machine.handle(shard.now, call)
    finally:
        sys.setprofile(None)
    assert steps <= 40
