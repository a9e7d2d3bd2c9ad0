"""Reassignment plans: draining, balancing, racks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from ottla.controller.partitions.reassignment_plan import (
    BrokerLoads,
    PlannedPartition,
    PlannedReassignment,
    drain,
    rebalance,
    replace_brokers,
)
from ottla.jobs.job import run_to_end

Partitions = dict[PlannedPartition, Sequence[int]]


def parts(*replicas: Sequence[int]) -> Partitions:
    return {("t", number): r for number, r in enumerate(replicas)}


def flat(count: int, rack: str | None = None) -> dict[int, str | None]:
    return dict.fromkeys(range(1, count + 1), rack)


def applied(partitions: Partitions, moves: list[PlannedReassignment]) -> Partitions:
    return {**partitions, **{move.partition: move.replicas for move in moves}}


def loads(partitions: Mapping[PlannedPartition, Sequence[int]]) -> Counter[int]:
    return Counter(b for replicas in partitions.values() for b in replicas)


def leads(partitions: Mapping[PlannedPartition, Sequence[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in partitions.values())


def test_least_loaded_prefers_other_rack_then_fewest_replicas() -> None:
    brokers = BrokerLoads({1: "a", 2: "a", 3: "b", 4: "b"})
    brokers.count([1, 3])
    brokers.count([1, 4])
    brokers.count([1, 3])
    assert [brokers.least_loaded(x) for x in ([], [1], [1, 4], [1, 2, 3, 4])] == [2, 4, 2, None]
    assert brokers.replicas == {1: 3, 2: 0, 3: 2, 4: 1}
    assert brokers.preferred_leads == {1: 3, 2: 0, 3: 0, 4: 0}
    assert brokers.least_loaded([9]) == 2, "an unknown broker has its own rack"


def test_drain_replaces_broker_in_place_and_evenly() -> None:
    partitions = parts([1, 2], [2, 1], [1, 3], [4, 1])
    moves, stuck = run_to_end(drain(flat(4), partitions, [1]))
    assert not stuck
    after = applied(partitions, moves)
    assert 1 not in loads(after)
    assert sorted(loads(after).values()) == [2, 3, 3]
    assert [after[at][1 - partitions[at].index(1)] for at in partitions] == [2, 2, 3, 4], (
        "other replicas keep their positions"
    )


def test_drain_without_replacement_returns_partition_as_stuck() -> None:
    partitions = parts([1, 2], [1, 3])
    racks = flat(3)
    moves, stuck = run_to_end(drain(racks, partitions, [1, 3]))
    assert stuck == [("t", 0), ("t", 1)]
    assert moves == []
    brokers = BrokerLoads({2: None, 3: None})
    brokers.count([1, 2, 4])
    assert replace_brokers(brokers, [1, 2, 4], [1, 4]) is None
    assert brokers.replicas == {2: 1, 3: 0}, "unchanged assignment"
    assert replace_brokers(brokers, [1, 2], [1]) == (3, 2)
    assert brokers.replicas == {2: 1, 3: 1}


def test_drain_keeps_replicas_in_different_racks() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    moves, _ = run_to_end(drain(racks, parts([1, 2], [1, 2]), [1]))
    assert moves == [PlannedReassignment(("t", 0), (3, 2)), PlannedReassignment(("t", 1), (3, 2))], (
        "4 has no replicas but is in the rack of 2"
    )


def test_rebalance_of_balanced_cluster_moves_no_replica() -> None:
    assert run_to_end(rebalance(flat(3), parts([1, 2], [2, 3], [3, 1]))) == []
    assert run_to_end(rebalance({}, parts([1]))) == []
    assert run_to_end(rebalance(flat(1), parts([1]))) == []


def test_rebalance_moves_fair_share_to_new_broker() -> None:
    partitions = parts(*([1, 2, 3], [2, 3, 1], [3, 1, 2]) * 4)
    moves = run_to_end(rebalance(flat(4), partitions))
    after = applied(partitions, moves)
    assert set(loads(after).values()) == {9}
    assert set(leads(after).values()) == {3}
    new = sum(len(set(after[at]) - set(partitions[at])) for at in partitions)
    assert new == 9, "the fair share of the new broker"


def test_rebalance_of_leaders_changes_replica_order() -> None:
    partitions = parts([1, 2], [1, 2], [1, 2], [1, 2])
    moves = run_to_end(rebalance(flat(2), partitions))
    after = applied(partitions, moves)
    assert leads(after) == {1: 2, 2: 2}
    assert len(moves) == 2


def test_rebalance_separates_replicas_in_same_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    after = applied({}, run_to_end(rebalance(racks, parts([1, 2]))))
    assert set(after[("t", 0)]) == {1, 3} or set(after[("t", 0)]) == {2, 3}


def test_rebalance_ignores_unknown_broker() -> None:
    assert run_to_end(rebalance(flat(2), parts([9], [1], [2]))) == []


@pytest.mark.parametrize("seed", range(60))
def test_rebalance_random_cluster_is_balanced_and_keeps_racks_apart(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.choice([[None], ["a", "b"], ["a", "b", "c"]])
    racks = {b: names[b % len(names)] for b in range(1, rng.randint(3, 9))}
    busy = rng.sample(sorted(racks), rng.randint(2, len(racks)))
    factor = rng.randint(1, min(3, len(busy)))
    partitions = parts(*(rng.sample(busy, factor) for _ in range(rng.randint(1, 80))))
    after = applied(partitions, run_to_end(rebalance(racks, partitions)))
    for at, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == factor
        apart = len({racks[b] for b in replicas})
        assert apart >= len({racks[b] for b in partitions[at]})
        assert apart == min(factor, len(set(racks.values())))
    counts = [loads(after)[b] for b in racks]
    if names == [None]:
        assert max(counts) - min(counts) <= 1
        first = leads(after)
        assert max(first[b] for b in racks) - min(first[b] for b in racks) <= 2
