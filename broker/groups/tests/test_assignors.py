"""Assignors: complete, balanced and sticky. compat_tests compare them with Kafka's own classes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.broker.groups.assignors.group_spec import (
    Assignment,
    GroupSpec,
    MemberSubscriptionAndAssignment,
    PartitionAssignorException,
)
from ottla.broker.groups.assignors.registry import assignor_by_name
from ottla.broker.groups.assignors.simple_assignor import (
    ShareGroupSpec,
    ShareMemberSubscription,
    assign_simple,
    target_partition_hash,
)
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.java_collections.hash_map import table_size_for
from ottla.broker.tests.run_steps import run_steps


def topic(number: int) -> bytes:
    return bytes([number]) * 16


def some_group(rng: random.Random, *, homogeneous: bool) -> GroupSpec:
    topics = {topic(n): rng.randint(1, 12) for n in range(1, rng.randint(2, 6))}
    every = tuple(topics)
    members = {}
    for n in range(rng.randint(1, 9)):
        wanted = every if homogeneous else tuple(t for t in every if rng.random() < 0.6)
        members[f"m{n}"] = MemberSubscriptionAndAssignment(
            wanted, len(wanted), {}, f"i{n}" if rng.random() < 0.2 else None
        )
    return GroupSpec(members, homogeneous, topics)


def owners(spec: GroupSpec, out: dict[str, Assignment]) -> Counter[tuple[bytes, int]]:
    for member, target in out.items():
        assert set(target) <= set(spec.members[member].topics)
    return Counter((t, n) for target in out.values() for t, numbers in target.items() for n in numbers)


def count(target: Assignment) -> int:
    return sum(map(len, target.values()))


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("homogeneous", [True, False])
def test_every_subscribed_partition_has_one_owner(name: str, *, homogeneous: bool) -> None:
    rng = random.Random(7)
    for _ in range(150):
        spec = some_group(rng, homogeneous=homogeneous)
        held = owners(spec, run_steps(assignor_by_name(name)(spec)))
        wanted = {t for claim in spec.members.values() for t in claim.topics}
        assert held == Counter((t, n) for t in wanted for n in range(spec.partitions[t]))


def test_uniform_assignor_balances_equal_subscriptions() -> None:
    rng = random.Random(8)
    for _ in range(100):
        spec = some_group(rng, homogeneous=True)
        sizes = [count(target) for target in run_steps(assignor_by_name("uniform")(spec)).values()]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("homogeneous", [True, False])
def test_uniform_assignor_moves_minimum_when_member_leaves(*, homogeneous: bool) -> None:
    rng = random.Random(9)
    for _ in range(100):
        spec = some_group(rng, homogeneous=homogeneous)
        first = run_steps(assignor_by_name("uniform")(spec))
        gone = next(iter(spec.members))
        rest = {m: c._replace(assignment=first.get(m, {})) for m, c in spec.members.items() if m != gone}
        second = run_steps(assignor_by_name("uniform")(GroupSpec(rest, homogeneous, spec.partitions)))
        if homogeneous:
            for member, claim in rest.items():
                before = {(t, n) for t, numbers in claim.assignment.items() for n in numbers}
                assert before <= {(t, n) for t, numbers in second[member].items() for n in numbers}
        again = {m: c._replace(assignment=second.get(m, {})) for m, c in rest.items()}
        third = run_steps(assignor_by_name("uniform")(GroupSpec(again, homogeneous, spec.partitions)))
        assert {m: {t: set(n) for t, n in x.items()} for m, x in third.items()} == {
            m: {t: set(n) for t, n in x.items()} for m, x in second.items()
        }


@pytest.mark.behaviour("C-199")
def test_range_assignor_orders_members_by_instance_id_then_member_id() -> None:
    claim = MemberSubscriptionAndAssignment((topic(1),), 1, {})
    members = {"a": claim, "b": claim._replace(instance_id="z"), "c": claim._replace(instance_id="y")}
    out = run_steps(assignor_by_name("range")(GroupSpec(members, True, {topic(1): 5})))
    assert {m: t[topic(1)] for m, t in out.items()} == {"c": (0, 1), "b": (2, 3), "a": (4,)}


@pytest.mark.behaviour("C-202")
def test_uniform_assignor_heterogeneous_topic_of_two_subscribers_is_balanced() -> None:
    """The second member is new; the other topic makes the subscriptions different."""
    everything = {topic(1): tuple(range(7))}
    spec = GroupSpec(
        {
            "a": MemberSubscriptionAndAssignment((topic(1),), 1, everything),
            "b": MemberSubscriptionAndAssignment((topic(1), topic(2)), 2, {}),
        },
        False,
        {topic(1): 7, topic(2): 1},
    )
    assert {m: count(target) for m, target in run_steps(assignor_by_name("uniform")(spec)).items()} == {"a": 4, "b": 4}


@pytest.mark.behaviour("C-195")
@pytest.mark.parametrize(
    ("uuid", "partition", "expected"),
    [
        (bytes(16), 3, 3),
        (bytes(15) + b"\x07", 0, 217),
        (bytes(15) + b"\x07", 3, 220),
        (b"\xff" * 4 + bytes(12), 3, 2**32 - 28),
    ],
)
def test_target_partition_hash_equals_jvm(uuid: bytes, partition: int, expected: int) -> None:
    """Expected values are those of ``TopicIdPartition.hashCode`` of a JVM."""
    assert target_partition_hash((uuid, partition)) == expected


@pytest.mark.behaviour("C-194", "C-195")
def test_java_hash_and_iteration_order_equal_jvm() -> None:
    """Expected values are those of ``String.hashCode``, ``HashMap`` and ``HashSet`` of a JVM."""
    assert iteration_order.string_hash("") == 0
    assert iteration_order.string_hash("consumer-group") == sum(
        ord(c) * 31 ** (13 - n) for n, c in enumerate("consumer-group")
    ) % (1 << 32)
    assert iteration_order.string_hash("x" * 1500) == sum(120 * 31**n for n in range(1500)) % (1 << 32)
    assert iteration_order.hash_map_order(["range", "uniform"]) == ["uniform", "range"]
    squares = [121, 100, 144, 16, 49, 196, 361, 25, 36, 4, 9, 64, 81, 1, 0, 256, 289, 169, 225, 324]
    assert iteration_order.hash_map_order([f"member-{n * n}" for n in range(20)]) == [f"member-{n}" for n in squares]
    assert iteration_order.integer_hash_set_order([17, 16, 1, 0]) == (16, 0, 17, 1)
    assert iteration_order.integer_hash_set_order(range(30)) == tuple(range(30))
    assert iteration_order.uuid_hash(bytes(15) + b"\x07") == 7
    assert iteration_order.uuid_hash(bytes([*range(1, 9), *range(0x11, 0x19)])) == 0


@pytest.mark.behaviour("C-198")
@pytest.mark.parametrize(("count", "buckets"), [(0, 2), (5, 16), (10, 16), (11, 32), (23, 64)])
def test_table_size_for_count_equals_kafka(count: int, buckets: int) -> None:
    """``AssignorHelpers.newHashMap`` asks for (count + 1) / 0.75 + 1 buckets; Java takes the next power of two."""
    assert table_size_for(count) == buckets


@pytest.mark.behaviour("C-203")
def test_simple_assignor_member_at_quota_gets_no_more_partitions() -> None:
    """The first member is at its quota of two after one partition, when the second one still lacks one."""
    members = {
        "a": ShareMemberSubscription((topic(1),), 1, {topic(1): (0,)}),
        "b": ShareMemberSubscription((topic(1),), 1, {}),
    }
    out = run_steps(assign_simple(ShareGroupSpec(members, True, {topic(1): (0, 1, 2, 3)})))
    assert {m: count(target) for m, target in out.items()} == {"a": 2, "b": 2}


def test_assignor_by_name_unknown_raises_partition_assignor_exception() -> None:
    with pytest.raises(PartitionAssignorException):
        assignor_by_name("sticky-from-a-newer-version")
