"""Cost and accounting of subscriptions to many, mostly nonexistent topics."""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.groups import records
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.consumer import target_assignment
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
)
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.subscription_counts import (
    SubscriptionCount,
    SubscriptionCounts,
    adjust_subscription_counts,
)
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.broker.handlers.groups.large_subscriptions import check_subscription
from ottla.broker.handlers.groups.tests.test_consumer_group_handlers import JOIN, forbidding, served
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, image_of
from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat, share_group_heartbeat

MANY = 2_000


def one_by_one(names: SubscriptionCounts, topics: frozenset[str], by_name: int, by_regex: int) -> None:
    for topic in topics:
        old = names.get(topic, SubscriptionCount())
        new = SubscriptionCount(old.by_name_count + by_name, old.by_regex_count + by_regex)
        if new.by_name_count <= 0 and new.by_regex_count <= 0:
            names.pop(topic, None)
        else:
            names[topic] = new


@pytest.mark.parametrize("seed", range(20))
def test_adjust_subscription_counts_equals_counting_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    ours: SubscriptionCounts = {}
    theirs: SubscriptionCounts = {}
    for _ in range(100):
        some = frozenset(rng.choices("abcdefgh", k=rng.randint(0, 6)))
        by = rng.choice([(1, 0), (-1, 0), (0, 1), (0, -1)])
        adjust_subscription_counts(ours, some, *by)
        one_by_one(theirs, some, *by)
        assert ours == theirs


@pytest.mark.parametrize("names", [["b", "a", "B"], ["\u00e9", "e", "f"], ["\uffff", "\U00010000", "a"], []])
def test_sort_strings_orders_by_utf16_as_java(names: list[str]) -> None:
    assert iteration_order.sort_strings(names) == sorted(names, key=lambda text: text.encode("utf-16-be"))


@pytest.mark.parametrize("more", [0, 50])
def test_hash_of_topics_ignores_nonexistent_names(more: int) -> None:
    topics = GroupTopicMetadata(image_of({"t": 3, "u": 1, "v": 2}))
    wanted = frozenset(["t", "u", *(f"none-{number}" for number in range(more))])
    assert topics.hash_of(wanted) == topics.hash_of(["u", "t"])
    assert set(topics.ids(wanted)) == set(topics.ids(["t", "u"]))
    assert topics.total_partitions(wanted) == 4


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


def test_subscribed_name_costs_no_python_call_on_decision_or_replay() -> None:
    ConsumerGroupShard().heartbeat("a", 0)  # loads the lazily imported modules
    shard = ConsumerGroupShard()
    names = ["t", *(f"none-{number}" for number in range(MANY))]
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", 0, None, None, 30_000, names, None, None, []
    )
    out: list[Any] = []
    assert calls_of(lambda: out.append(shard.machine.handle(1, GroupRequest("x", joins, 1, "c", "h")))) < MANY // 4
    assert calls_of(lambda: [shard.machine.replay(0, record) for record in out[0].records]) < MANY // 4
    assert len(shard.consumer.subscribed_topic_names) == MANY + 1
    member = shard.consumer.members["a"]
    again = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", member.epoch, subscribed_topic_names=names[::-1]
    )
    assert calls_of(lambda: out.append(shard.machine.handle(1, GroupRequest("x", again, 1, "c", "h")))) < MANY // 4
    assert not out[1].records
    shard.heartbeat("a", -1)
    assert shard.consumer.subscribed_topic_names == {}


@pytest.mark.parametrize("letters", ["abc", "aé\uffff\U00010000"])
def test_sort_strings_in_steps_sorts_many_strings_stepwise(letters: str) -> None:
    rng = random.Random(letters)
    texts = {
        "".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(3 * iteration_order.MAX_SORTED_PER_STEP)
    }
    steps, count = iteration_order.sort_strings_job(texts), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        count += 1
    assert count >= len(texts) // iteration_order.MAX_SORTED_PER_STEP
    assert list(found) == list(iteration_order.sort_strings(texts))
    assert found == texts


def joining(names: Any, member: str = "a") -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", member, 0, None, None, 30_000, names, None, None, []
    )


def test_sorted_names_are_kept_and_encoded_like_unsorted() -> None:
    plain, ordered = ConsumerGroupShard(), ConsumerGroupShard()
    names = iteration_order.JavaSortedStrings(["a", "b", "t"])
    reported = [
        x.machine.handle(1, GroupRequest("x", joining(y), 1, "c", "h"))
        for x, y in ((plain, ["t", "b", "a"]), (ordered, names))
    ]
    assert [records.encode(record) for record in reported[0].records] == [
        records.encode(record) for record in reported[1].records
    ]
    for record in reported[1].records:
        ordered.machine.replay(0, record)
    assert ordered.consumer.members["a"].subscribed_topic_names is names


class HashCountingName(str):
    """Name that counts how often it is hashed."""

    __slots__ = ()
    times = 0

    def __hash__(self) -> int:
        HashCountingName.times += 1
        return super().__hash__()


def test_check_subscription_step_does_not_rescan_earlier_names() -> None:
    names: list[str] = [
        HashCountingName(f"none-{number}") for number in range(10 * iteration_order.MAX_SORTED_PER_STEP)
    ]
    log = SimpleNamespace(config=SimpleNamespace(max_message_bytes=2**20))
    shard = SimpleNamespace(replica=SimpleNamespace(log=log))
    groups = SimpleNamespace(shard_for=lambda group_id: shard)
    context: Any = SimpleNamespace(has_authorizer=False, services=SimpleNamespace(groups=groups))
    HashCountingName.times, most = 0, 0
    for _ in check_subscription(context, "g", names):
        most, HashCountingName.times = max(most, HashCountingName.times), 0
    assert most <= 4 * iteration_order.MAX_SORTED_PER_STEP


def named(node: GroupCoordinatorNode, names: list[str], each_ms: float = 5) -> Any:
    """Return the response to a heartbeat subscribing to these names, when every step takes a full slice."""
    out: list[Any] = []

    async def scenario() -> None:
        fields = {name: getattr(JOIN, name) for name in JOIN.__struct_fields__} | {"subscribed_topic_names": names}
        request = node.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(**fields),
            each_ms,
        )
        assert isinstance(request, Awaitable), "it was taken in in one go"
        out.append(await request)

    run(node, scenario)
    return out[0]


SOME = ["t", *(f"none-{number}" for number in range(MANY))]


def test_heartbeat_with_many_names_runs_in_steps() -> None:
    node = served()
    assert named(node, SOME + SOME[::-1]).error_code == 0
    member = node.groups.shard_for("g").machine.find_consumer_group("g").members["a"]  # type: ignore[attr-defined]
    assert list(member.subscribed_topic_names) == sorted(SOME)
    assert list(member.assigned)


def test_heartbeat_with_names_over_record_size_is_refused_before_sorting() -> None:
    node = served()
    end = node.replica.log.log_end_offset
    assert (
        named(node, [f"{number}-{'x' * 200}" for number in range(6_000)]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert node.replica.log.log_end_offset == end


def test_heartbeat_with_many_names_authorizes_each_name() -> None:
    node = served()
    forbidding(node, "none-1234")
    assert named(node, SOME).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_share_group_heartbeat_with_many_names_runs_in_steps() -> None:
    node = served()
    node.fixture.hosted.image = replace(node.fixture.hosted.image, features={"share.version": 1})
    answers: list[Any] = []

    async def scenario() -> None:
        for names in (SOME[1:], [f"{number}-{'x' * 200}" for number in range(6_000)]):
            request = share_group_heartbeat.ShareGroupHeartbeatRequest("g", "a", 0, subscribed_topic_names=names)
            answers.append(await node.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, 5))

    run(node, scenario)
    assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
    member = node.groups.shard_for("g").machine.find_share_group("g").members["a"]  # type: ignore[attr-defined]
    assert type(member.subscribed_topic_names) is iteration_order.JavaSortedStrings
    assert list(member.subscribed_topic_names) == sorted(SOME[1:])


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("differ", [False, True])
def test_target_assignment_of_many_topics_is_computed_in_slices(assignor: str, differ: bool) -> None:
    topics = [f"t{number}" for number in range(MANY)]
    group = ConsumerGroup("g")
    for number in range(16):
        names = frozenset(name for at, name in enumerate(topics) if not differ or at % 16 != number)
        group.members[f"m{number}"] = ConsumerGroupMember(f"m{number}", subscribed_topic_names=names)
    plan = target_assignment.capture_input(group, 2, group.members["m0"], homogeneous=not differ, name=assignor)
    work = target_assignment.compute_targets(plan, GroupTopicMetadata(image_of(dict.fromkeys(topics, 1))))
    calls = []
    while calls[-1:] != [1]:
        calls.append(calls_of(lambda: next(work, None)))
    assert max(calls) < 5 * MANY
