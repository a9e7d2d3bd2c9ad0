"""Subscriptions of consumer groups by regular expression."""

from __future__ import annotations

import pytest

from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    ConsumerMemberClient,
    assignment_by_letter,
    reconcile_members,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat


@pytest.mark.behaviour("C-179")
def test_subscribed_regex_is_resolved_outside_heartbeats() -> None:
    shard = ConsumerGroupShard({"foo-1": 1, "foo-2": 1, "xfoo-3": 1})
    a = ConsumerMemberClient(shard, "a", subscribed_topic_regex="foo-.*")
    first = a.beat()
    assert (first.member_epoch, assignment_by_letter(first.assignment)) == (1, {})
    assert shard.records() == ["5a", "8a"]
    written = len(shard.log)
    shard.wait(0)
    assert shard.records(written) == ["16", "3"]
    resolved = shard.consumer.resolved_regexes["foo-.*"]
    assert (resolved.topics, resolved.image_offset, resolved.resolved_ms) == ({"foo-1", "foo-2"}, shard.now, shard.now)
    reconcile_members(a)
    assert a.owned == {"foo-1": [0], "foo-2": [0]}
    written = len(shard.log)
    shard.heartbeat("a", -1)
    assert shard.records(written) == ["-8a", "-7a", "-5a", "-16", "3"]


@pytest.mark.behaviour("C-179")
def test_subscribed_regex_invalid_in_re2_is_refused() -> None:
    shard = ConsumerGroupShard()
    for bad in ("a**", "(", r"(a)\1", "(?=a)", r"\pL{1000}", "\ud800"):
        assert shard.heartbeat("a", 0, subscribed_topic_regex=bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert shard.log == []
    assert shard.heartbeat("a", 0, subscribed_topic_regex="").error_code == 0


@pytest.mark.behaviour("C-179")
def test_subscribed_regex_is_refreshed_at_most_every_ten_seconds() -> None:
    shard = ConsumerGroupShard({"foo-1": 1})
    a = ConsumerMemberClient(shard, "a", subscribed_topic_regex="foo-.*")
    reconcile_members(a)
    shard.image({"foo-1": 1, "foo-2": 1}, has_new=True)
    reconcile_members(a, rounds=3)
    assert a.owned == {"foo-1": [0]}
    shard.wait(10_000)
    a.beat()
    shard.wait(0)
    reconcile_members(a)
    assert a.owned == {"foo-1": [0], "foo-2": [0]}


@pytest.mark.behaviour("C-179")
def test_subscribed_regex_is_resolved_after_the_search_that_runs() -> None:
    shard = ConsumerGroupShard({"foo-1": 1, "bar-1": 1})
    shard.heartbeat("a", 0, subscribed_topic_regex="foo-.*")
    search = shard.machine.consumer_groups.regex_searches["g"]
    shard.heartbeat("b", 0, subscribed_topic_regex="bar-.*")
    assert shard.machine.consumer_groups.regex_searches["g"] is search
    shard.wait(10_001)
    assert set(shard.consumer.resolved_regexes) == {"foo-.*"}
    shard.heartbeat("b", shard.consumer.members["b"].epoch)
    shard.wait(0)
    assert set(shard.consumer.resolved_regexes) == {"foo-.*", "bar-.*"}


def test_member_with_unresolved_regex_of_another_bumps_no_epoch() -> None:
    shard = ConsumerGroupShard({"foo-1": 1})
    shard.heartbeat("a", 0, subscribed_topic_regex="foo-.*")
    epoch, written = shard.consumer.epoch, len(shard.log)
    shard.heartbeat("b", 0, subscribed_topic_regex="foo-.*")
    assert (shard.consumer.epoch, shard.records(written)) == (epoch, ["5b", "8b"])


@pytest.mark.behaviour("C-179")
def test_subscribed_regex_matches_only_topics_the_member_may_describe() -> None:
    shard = ConsumerGroupShard({"foo-1": 1, "foo-2": 1})
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", 0, None, None, 30_000, None, "foo-.*", None, []
    )
    shard.call(request, can_describe=lambda name: name == "foo-2")
    shard.wait(0)
    assert shard.consumer.resolved_regexes["foo-.*"].topics == {"foo-2"}


def test_member_adopting_resolved_regex_bumps_epoch() -> None:
    shard = ConsumerGroupShard({"foo-1": 1, "foo-2": 1, "t": 1})
    a, b = ConsumerMemberClient(shard, "a", subscribed_topic_regex="foo-.*"), ConsumerMemberClient(shard, "b")
    reconcile_members(a)
    reconcile_members(a, b)
    epoch = shard.consumer.epoch
    b.beat(subscribed_topic_regex="foo-.*", subscribed_topic_names=[])
    assert shard.consumer.epoch == epoch + 1
    reconcile_members(a, b)
    assert sorted([*a.owned, *b.owned]) == ["foo-1", "foo-2"]
    b.beat(subscribed_topic_regex="")
    reconcile_members(a, b)
    assert (sorted(a.owned), b.owned) == (["foo-1", "foo-2"], {})


@pytest.mark.parametrize("others", [0, 1])
def test_metadata_hash_after_change_of_regex_covers_topics_still_subscribed(others: int) -> None:
    shard = ConsumerGroupShard({"foo-1": 1, "t": 1})
    members = [ConsumerMemberClient(shard, name, subscribed_topic_regex="foo-.*") for name in "ab"[: 1 + others]]
    reconcile_members(*members)
    members[0].beat(subscribed_topic_regex="", subscribed_topic_names=["t"])
    topics = shard.machine.consumer_groups.topics
    assert shard.consumer.metadata_hash == topics.hash_of(["t", "foo-1"] if others else ["t"])


@pytest.mark.behaviour("C-180")
def test_members_with_equal_regex_are_assigned_as_homogeneous_group() -> None:
    """The assignor of different subscriptions would give the first member other partitions."""
    shard = ConsumerGroupShard({"foo-1": 3, "foo-2": 3, "foo-3": 3})
    a, b = (ConsumerMemberClient(shard, name, subscribed_topic_regex="foo-.*") for name in "ab")
    reconcile_members(a)
    reconcile_members(a, b)
    assert (a.owned, b.owned) == ({"foo-2": [0, 1, 2], "foo-1": [0, 1]}, {"foo-1": [2], "foo-3": [0, 1, 2]})
