"""Members with a very large subscription: elements that are handled between two pauses of the event loop."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Any

import pytest

from ottla.broker.groups import records as group_records
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import classic_join, consumer_protocol
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.java_collections.iteration_order import MAX_SORTED_PER_STEP, JavaSortedStrings
from ottla.broker.groups.share.heartbeat import heartbeat as share_heartbeat
from ottla.broker.groups.state_machine import ShareGroupCommand
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.jobs.sequences import sort_job
from ottla.wire.codec import compiler
from ottla.wire.codec.lazy_array import ELEMENTS_PER_YIELD
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, join_group, share_group_heartbeat
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

MANY = 20 * MAX_SORTED_PER_STEP
MOST_BETWEEN_PAUSES = 6 * MAX_SORTED_PER_STEP


class CountedName(str):
    """A name that counts how often it is hashed or compared."""

    __slots__ = ()
    uses = 0

    def __hash__(self) -> int:
        CountedName.uses += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        CountedName.uses += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        CountedName.uses += 1
        return str.__lt__(self, other)


def counted_names(first: int = 0) -> list[str]:
    return [CountedName(f"none-{number:06}") for number in range(first, first + MANY)]


def in_steps(work: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result of a generator, and the most uses of names between two of its pauses."""
    most, CountedName.uses = 0, 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, max(most, CountedName.uses)
        most, CountedName.uses = max(most, CountedName.uses), 0


def apply(shard: ConsumerGroupShard, fx: GroupEffects) -> tuple[int, int]:
    """Apply effects as a shard does; return the most uses of names between two pauses, and the number of pauses."""
    most, pauses = CountedName.uses, 0
    for part in chain([fx], fx.continuation or ()):
        part = part or GroupEffects()
        for number, record in enumerate(part.records):
            shard.machine.replay(number, record)
        for reply in part.replies:
            shard.answers[reply.pending_request] = reply.message
        most, CountedName.uses, pauses = max(most, CountedName.uses), 0, pauses + 1
    return most, pauses


def ask(shard: ConsumerGroupShard, event: Any) -> tuple[int, int]:
    CountedName.uses = 0
    return apply(shard, shard.machine.handle(shard.now, event))


def join_request(metadata: bytes, member_id: str = "classic") -> GroupRequest:
    protocols = [join_group.JoinGroupRequestProtocol("range", metadata)]
    request = join_group.JoinGroupRequest("g", 10_000, 30_000, member_id, None, "consumer", protocols)
    return GroupRequest("join", request, 9, "c", "h", "id")


def subscription_bytes(names: list[str]) -> bytes:
    return struct.pack(">h", 1) + compiler.encode(ConsumerProtocolSubscription(names), 1)


def with_classic_member() -> ConsumerGroupShard:
    shard = ConsumerGroupShard()
    shard.heartbeat("new", 0)
    apply(shard, shard.machine.handle(shard.now, join_request(subscription_bytes(["t"]), "first")))
    assert shard.consumer.classic_member_count == 1
    return shard


@pytest.mark.parametrize("key", [None, iteration_order.java_string_sort_key])
def test_sort_job_equals_sorted_and_pauses(key: Callable[[str], Any] | None) -> None:
    names = counted_names()
    names = names[1::2] + names[::2]
    found, most = in_steps(sort_job(names, key))
    assert found == sorted(names, key=key)
    assert most <= 12 * MAX_SORTED_PER_STEP, "so many comparisons sort a chunk"


def test_sort_job_is_stable_among_equal_keys() -> None:
    items = [(number % 3, number) for number in range(5 * MAX_SORTED_PER_STEP)]
    found, _ = in_steps(sort_job(items, lambda item: item[0]))
    assert found == sorted(items, key=lambda item: item[0])


def test_java_sorted_strings_are_compared_in_steps_as_at_once() -> None:
    names = counted_names()
    one, same, other = JavaSortedStrings(names), JavaSortedStrings(counted_names()), JavaSortedStrings(names[1:])
    for against, is_equal in (
        (one, True),
        (same, True),
        (other, False),
        (frozenset(names), True),
        (frozenset(), False),
    ):
        assert in_steps(one.equals_job(against))[0] is (one == against) is is_equal
    assert in_steps(one.equals_job(same))[1] <= iteration_order.MAX_COMPARED_PER_STEP


def test_subscription_of_classic_member_is_decoded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = with_classic_member()
    names = [f"none-{number}" for number in range(MANY)]
    call = join_request(subscription_bytes(names))

    def refuse(*_: Any) -> Any:
        raise AssertionError("large bytes are decoded in one step")

    monkeypatch.setattr(compiler, "decode", refuse)
    _, pauses = ask(shard, call)
    assert pauses >= MANY // ELEMENTS_PER_YIELD
    assert shard.answers["join"].error_code == ErrorCode.NONE
    assert set(shard.consumer.members["classic"].subscribed_topic_names) == set(names)


def test_join_of_classic_member_with_large_subscription_runs_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = with_classic_member()
    for first in (0, 7, 7):  # it joins, changes its subscription, and repeats it
        fields = ConsumerProtocolSubscription(counted_names(first))

        def decode(_: bytes, fields: Any = fields) -> Iterator[None]:
            yield
            return fields

        monkeypatch.setattr(consumer_protocol, "decode_subscription", decode)
        most, _ = ask(shard, join_request(bytes(classic_join.MAX_BYTES_AT_ONCE + 1)))
        assert most <= MOST_BETWEEN_PAUSES
        assert shard.answers["join"].error_code == ErrorCode.NONE
        assert set(shard.consumer.subscribed_topic_names) == {"t", *fields.topics}


def test_subscription_that_does_not_fit_into_a_record_is_refused_before_it_is_sorted() -> None:
    shard = with_classic_member()
    names = [f"{number:040}" for number in range(26_000)]
    with pytest.raises(ProtocolError) as caught:
        ask(shard, join_request(subscription_bytes(names)))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "classic" not in shard.consumer.members


def test_small_subscription_of_classic_member_is_answered_at_once() -> None:
    shard = with_classic_member()
    assert ask(shard, join_request(subscription_bytes(["t", "u"])))[1] == 1
    assert shard.answers["join"].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("over", "is_at_once"), [(0, True), (1, False)])
def test_join_of_classic_member_with_longest_metadata_decoded_at_once(over: int, is_at_once: bool) -> None:
    shard = with_classic_member()
    metadata = subscription_bytes(["t"])
    metadata += bytes(classic_join.MAX_BYTES_AT_ONCE + over - len(metadata))
    _, pauses = ask(shard, join_request(metadata))
    assert shard.answers["join"].error_code == ErrorCode.NONE
    assert (pauses == 1) is is_at_once


def heartbeat_of(names: Any, epoch: int = 0) -> GroupRequest:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "large", epoch, None, None, 30_000, names, None, None, []
    )
    return GroupRequest("beat", request, 1, "c", "h")


def share_heartbeat_of(names: Any, epoch: int = 0) -> ShareGroupCommand:
    request = share_group_heartbeat.ShareGroupHeartbeatRequest("g", "large", epoch, subscribed_topic_names=names)
    call = GroupRequest("beat", request, 1, "c", "h")
    return ShareGroupCommand("beat", lambda groups, pending, now: share_heartbeat(groups, pending, now, call=call))


@pytest.mark.parametrize("event_of", [heartbeat_of, share_heartbeat_of])
def test_heartbeat_with_large_subscription_is_decided_and_replayed_in_slices(event_of: Callable[..., Any]) -> None:
    shard = ConsumerGroupShard()
    for first in (0, 7, 7):
        names = JavaSortedStrings(counted_names(first))
        assert ask(shard, event_of(names))[0] <= MOST_BETWEEN_PAUSES
    find = shard.machine.find_consumer_group if event_of is heartbeat_of else shard.machine.find_share_group
    group: Any = find("g")
    assert set(group.subscribed_topic_names) == set(names)
    assert ask(shard, event_of(None, -1))[0] <= MOST_BETWEEN_PAUSES, "it leaves"
    assert not group.members
    assert not group.subscribed_topic_names


def test_members_with_equal_large_subscriptions_share_one_object() -> None:
    shard = ConsumerGroupShard()
    for member in ("a", "b"):
        request = heartbeat_of(JavaSortedStrings(counted_names()))
        ask(shard, request._replace(request=_renamed(request.request, member)))
    first, second = (shard.consumer.members[member].subscribed_topic_names for member in ("a", "b"))
    assert first is second


def _renamed(request: Any, member: str) -> Any:
    request.member_id = member
    return request


def test_record_of_large_subscription_is_encoded_in_steps() -> None:
    shard = ConsumerGroupShard()
    fx = shard.machine.handle(shard.now, heartbeat_of(JavaSortedStrings(counted_names())))
    record = next(record for part in filter(None, chain([fx], fx.continuation or ())) for record in part.records)
    steps = 0
    encoding = group_records.encode_job(record)
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            encoded = end.value
            break
        steps += 1
    assert encoded == group_records.encode(record)
    assert steps >= MANY // 1_000
