"""Striped replica placement (R-299)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.partitions.replica_placer import StripedReplicaPlacer, random_index, shuffle
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.metadata_records import RegisterBrokerRecord


def broker(
    number: int, rack: str | None = None, *, fenced: bool = False, leaving: bool = False
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(number, False, bytes(16), 0, [], [], rack, fenced, leaving, [bytes([number] * 16)])


def image(*brokers: RegisterBrokerRecord) -> MetadataImage:
    return MetadataImage(brokers={b.broker_id: b for b in brokers})


def placed(where: MetadataImage, count: int, factor: int, rng: Callable[[], float] = lambda: 0.0) -> list[list[int]]:
    placer = StripedReplicaPlacer(where, factor, rng)
    return [placer.place_next() for _ in range(count)]


def test_place_next_rotates_leaders_and_followers() -> None:
    assert placed(image(*(broker(i) for i in (3, 1, 2))), 3, 2) == [[1, 2], [2, 3], [3, 1]]


def test_place_next_starts_at_random_broker() -> None:
    three = image(*(broker(i) for i in (1, 2, 3)))
    assert placed(three, 1, 3, lambda: 0.34) == [[2, 3, 1]]
    assert placed(three, 1, 3, lambda: 0.99) == [[3, 1, 2]]


def test_place_next_spreads_single_partition_topics_over_all_brokers() -> None:
    rng = random.Random(5).random
    three = image(*(broker(i) for i in (1, 2, 3)))
    leaders = Counter(placed(three, 1, 1, rng)[0][0] for _ in range(300))
    assert all(70 <= leaders[i] <= 130 for i in (1, 2, 3)), leaders


def test_place_next_uses_other_racks_first() -> None:
    racks = image(*(broker(i, "ab"[i % 2]) for i in range(4)))
    for replicas in placed(racks, 20, 2, random.Random(1).random):
        assert {i % 2 for i in replicas} == {0, 1}
    for replicas in placed(racks, 20, 4, random.Random(1).random):
        assert sorted(replicas) == [0, 1, 2, 3]
        assert {i % 2 for i in replicas[:2]} == {0, 1}


def test_place_next_brokers_without_rack_form_the_first_rack() -> None:
    assert placed(image(broker(1, "a"), broker(2), broker(3, "")), 3, 3) == [[2, 3, 1], [3, 1, 2], [1, 2, 3]]


def test_place_next_fenced_broker_is_never_leader() -> None:
    some = image(broker(1), broker(2, fenced=True), broker(3))
    for replicas in placed(some, 30, 3, random.Random(2).random):
        assert replicas[0] in (1, 3)
        assert replicas[2] == 2
    for replicas in placed(some, 30, 2, random.Random(2).random):
        assert 2 not in replicas


def test_place_next_rack_without_active_broker_is_skipped_for_leader() -> None:
    racks = image(broker(1, "a", fenced=True), broker(2, "b", fenced=True), broker(3, "c"), broker(4, "d"))
    assert placed(racks, 1, 1) == [[3]]
    assert placed(racks, 1, 1, lambda: 0.26) == [[3]]
    assert placed(racks, 1, 1, lambda: 0.99) == [[4]]
    last = image(broker(1, "a"), broker(2, "b"), broker(3, "c", fenced=True))
    assert placed(last, 1, 1, lambda: 0.99) == [[1]], "wraps around to the first broker"


def test_place_next_shuffles_after_a_full_round() -> None:
    six = image(*(broker(i) for i in range(6)))
    lists = placed(six, 600, 2, random.Random(3).random)
    pairs = Counter(tuple(sorted(r)) for r in lists)
    assert len(pairs) == 15, "every pair of brokers shares a partition"
    assert all(80 <= n <= 120 for n in Counter(r[0] for r in lists).values())
    assert len({tuple(map(tuple, lists[at : at + 6])) for at in range(0, 600, 6)}) > 50


def test_place_next_returns_distinct_brokers() -> None:
    racks = image(*(broker(i, "abc"[i % 3]) for i in range(7)))
    for factor in range(1, 8):
        for replicas in placed(racks, 50, factor, random.Random(factor).random):
            assert len(set(replicas)) == len(replicas) == factor


def cordoned(number: int) -> RegisterBrokerRecord:
    record = broker(number)
    record.cordoned_log_dirs = list(record.log_dirs)
    return record


@pytest.mark.parametrize(
    ("brokers", "factor"),
    [
        ([], 1),
        ([broker(1, fenced=True)], 1),
        ([broker(1, leaving=True)], 1),
        ([cordoned(1)], 1),
        ([broker(1)], 2),
        ([broker(1), broker(2, leaving=True)], 2),
        ([broker(1), cordoned(2)], 2),
    ],
)
def test_replica_placer_too_few_brokers_raises_invalid_replication_factor(
    brokers: list[RegisterBrokerRecord], factor: int
) -> None:
    with pytest.raises(ProtocolError) as caught:
        StripedReplicaPlacer(image(*brokers), factor, lambda: 0.0)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_place_next_fenced_broker_in_shutdown_may_follow() -> None:
    assert placed(image(broker(1), broker(2, fenced=True, leaving=True)), 1, 2) == [[1, 2]]


def test_place_next_broker_with_one_usable_directory_is_used() -> None:
    record = broker(1)
    record.log_dirs = [bytes([1] * 16), bytes([2] * 16)]
    record.cordoned_log_dirs = [bytes([1] * 16)]
    assert placed(image(record), 1, 1) == [[1]]


def test_random_index_and_shuffle_are_uniform() -> None:
    rng = random.Random(1).random
    assert {random_index(rng, 3) for _ in range(50)} == {0, 1, 2}
    orders = Counter()
    for _ in range(600):
        items = [1, 2, 3]
        shuffle(items, rng)
        orders[tuple(items)] += 1
    assert len(orders) == 6
    assert all(60 <= n <= 140 for n in orders.values())
