"""Plan that empties a broker: moves with leaders, partitions that cannot move, and shares of the brokers."""

from __future__ import annotations

from ottla.console.pages.drain import DrainMove, plan_drain
from ottla.console.pages.reassignments import BrokerShare, Move, ReplicaState
from ottla.jobs.job import run_to_end

RACKS = dict.fromkeys((1, 2, 3))


def state(racks: dict[int, str | None], *replicas: list[int], leaders: list[int]) -> ReplicaState:
    partitions = {("t", number): ids for number, ids in enumerate(replicas)}
    return ReplicaState(racks, partitions, dict(zip(partitions, leaders, strict=True)), [])


def test_plan_replaces_the_broker_in_place_and_leaves_other_partitions() -> None:
    plan = run_to_end(plan_drain(state(RACKS, [1, 2], [2, 1], [2, 3], leaders=[1, 2, 2]), 1))
    assert [each.move for each in plan.moves] == [Move("t", 0, (1, 2), (3, 2)), Move("t", 1, (2, 1), (2, 3))]
    assert plan.shares == [BrokerShare(1, 2, 0, 1, 0), BrokerShare(2, 3, 3, 2, 2), BrokerShare(3, 1, 3, 0, 1)]
    assert plan.stuck == []


def test_leader_changes_only_if_it_is_the_broker_or_absent() -> None:
    plan = run_to_end(plan_drain(state(RACKS, [1, 2], [1, 2], [2, 1], leaders=[1, 2, -1]), 1))
    assert plan.moves == [
        DrainMove(Move("t", 0, (1, 2), (3, 2)), 1, 3),
        DrainMove(Move("t", 1, (1, 2), (3, 2)), 2, 2),
        DrainMove(Move("t", 2, (2, 1), (2, 3)), -1, 2),
    ]
    assert plan.new_leaders == 2


def test_partition_with_a_replica_on_each_live_broker_is_stuck() -> None:
    plan = run_to_end(plan_drain(state(RACKS, [1, 2, 3], [1], leaders=[1, 1]), 1))
    assert plan.stuck == [("t", 0)]
    assert [each.move.partition for each in plan.moves] == [1]
    assert plan.shares[0] == BrokerShare(1, 2, 1, 2, 1)


def test_broker_that_is_down_has_a_share_and_is_drained() -> None:
    plan = run_to_end(plan_drain(state({2: None, 3: None}, [1, 2], leaders=[2]), 1))
    assert plan.moves == [DrainMove(Move("t", 0, (1, 2), (3, 2)), 2, 2)]
    assert plan.shares[0] == BrokerShare(1, 1, 0, 1, 0)


def test_broker_without_replicas_has_no_moves() -> None:
    plan = run_to_end(plan_drain(state(RACKS, [2, 3], leaders=[2]), 1))
    assert (plan.moves, plan.stuck) == ([], [])
