"""Removal of a node: obstacles, and throttle configs of its moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment
from ottla.tools.node_removal import (
    ClusterSnapshot,
    PartitionReplicas,
    VoterStatus,
    must_remove_votes_first,
    removal_obstacle,
)
from ottla.tools.reassignment_throttle import throttle_configs, throttle_removals
from ottla.wire.codec.schema import ZERO_UUID

D = bytes(15) + b"\x01"


def seen(
    brokers: Mapping[int, bool], voters: Mapping[int, bool], *partitions: PartitionReplicas, directory: bytes = D
) -> ClusterSnapshot:
    racks = {i: None for i, alive in brokers.items() if alive}
    places: dict[PlannedPartition, PartitionReplicas] = {("t", number): p for number, p in enumerate(partitions)}
    return ClusterSnapshot("c", brokers, racks, {i: VoterStatus(directory, v) for i, v in voters.items()}, places)


UP, DOWN = True, False
THREE = {1: UP, 2: UP, 3: UP}
BOTH = PartitionReplicas((3, 1), (3, 1), 3)
ONLY_THERE = PartitionReplicas((3, 1), (3,), 3)
UNLED = PartitionReplicas((3, 1), (3,), -1)

ROWS = [
    # brokers, voters, partitions, part of the obstacle or None
    (THREE, THREE, [BOTH], None),
    (THREE, THREE, [ONLY_THERE], None),  # the replica is moved while node 3 runs
    ({1: UP, 2: UP, 3: DOWN}, {1: UP, 2: UP, 3: DOWN}, [PartitionReplicas((3, 1), (1,), 1)], None),
    ({1: UP, 2: UP, 3: DOWN}, {1: UP, 2: UP, 3: DOWN}, [UNLED], "records would be lost: only node 3"),
    ({1: UP, 2: UP, 3: DOWN}, {1: UP}, [PartitionReplicas((3, 1), (3,), 3)], "has all of t:0; start it again first"),
    ({1: UP, 2: UP}, {1: UP, 2: UP}, [], "no node 3"),
    ({3: UP}, {3: UP}, [], "only node 3 is a voter"),
    ({1: UP, 3: UP}, {1: UP, 3: UP}, [], None),
    (THREE, {1: UP, 2: DOWN, 3: UP}, [], "the quorum would be lost: of the 2 other voters only 1"),
    (THREE, {1: UP, 2: UP}, [], None),  # broker only
    ({1: UP}, {1: UP, 2: UP, 3: DOWN}, [], None),  # controller only
    ({1: UP, 2: UP, 3: UP}, {1: UP, 2: UP, 3: UP, 4: DOWN, 5: DOWN}, [], "the quorum would be lost"),
]


@pytest.mark.parametrize(("brokers", "voters", "partitions", "why"), ROWS)
def test_removal_obstacle_if_quorum_or_records_would_be_lost(
    brokers: dict[int, bool], voters: dict[int, bool], partitions: list[PartitionReplicas], why: str | None
) -> None:
    obstacle = removal_obstacle(seen(brokers, voters, *partitions), [3])
    assert obstacle == why if why is None or obstacle is None else why in obstacle


def test_removal_obstacle_static_voter_cannot_be_removed() -> None:
    obstacle = removal_obstacle(seen(THREE, THREE, directory=ZERO_UUID), [3])
    assert obstacle is not None
    assert "kraft.version 0" in obstacle


def test_removal_obstacle_several_nodes_require_remaining_replicas() -> None:
    dead = {1: UP, 2: DOWN, 3: DOWN}
    voters = {1: UP}
    assert removal_obstacle(seen(dead, voters, PartitionReplicas((1, 2, 3), (1,), 1)), [2, 3]) is None
    obstacle = removal_obstacle(seen({1: UP, 2: DOWN, 3: UP}, voters, PartitionReplicas((2, 3), (2,), 2)), [2, 3])
    assert obstacle == "records would be lost: only node 2 has all of t:0; start it again first"
    assert removal_obstacle(seen({1: UP, 2: UP, 3: UP, 4: UP}, {1: UP, 2: UP, 3: UP, 4: DOWN}), [2, 3]) == (
        "the quorum would be lost: of the 2 other voters only 1 are alive"
    )
    assert removal_obstacle(seen(THREE, {1: UP, 2: UP, 3: DOWN}), [2, 3]) is None
    assert not must_remove_votes_first(seen(dead, {1: UP, 2: DOWN, 3: DOWN}), [2, 3]), "dead nodes are no voters"


def test_removal_of_one_of_two_voters_requires_vote_removal_first() -> None:
    two = seen({1: UP, 3: UP}, {1: UP, 3: UP})
    assert must_remove_votes_first(two, [3])
    assert not must_remove_votes_first(seen(THREE, THREE), [3])
    assert not must_remove_votes_first(seen(THREE, {1: UP}), [3])
    assert "rejoins as voter" in (removal_obstacle(two, [3], joins_again=True) or "")
    assert removal_obstacle(seen(THREE, THREE), [3], joins_again=True) is None


def test_throttle_configs_list_old_replicas_as_leaders_and_new_as_followers() -> None:
    before = {("t", 0): [1, 2], ("t", 1): [2, 1], ("u", 0): [1, 3], ("v", 0): [4]}
    moves = [
        PlannedReassignment(("t", 0), (3, 2)),
        PlannedReassignment(("t", 1), (2, 3)),
        PlannedReassignment(("u", 0), (3, 1)),
        PlannedReassignment(("v", 0), (5,)),
    ]
    rows = throttle_configs(moves, before, 1000)
    set_to = {(r.resource_type, r.resource_name): {c.name: c.value for c in r.configs} for r in rows}
    assert {c.config_operation for r in rows for c in r.configs} == {0}
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    assert set_to[2, "t"] == dict(zip(lists, ("0:1,0:2,1:1,1:2", "0:3,1:3"), strict=True))
    assert set_to[2, "v"] == dict(zip(lists, ("0:4", "0:5"), strict=True))
    assert (2, "u") not in set_to, "only the replica order changes"
    rates = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
    assert {name: x for (kind, name), x in set_to.items() if kind == 4} == dict.fromkeys("12345", rates)
    away = throttle_removals(rows)
    assert [(r.resource_type, r.resource_name, [c.name for c in r.configs]) for r in away] == [
        (r.resource_type, r.resource_name, [c.name for c in r.configs]) for r in rows
    ]
    assert {(c.config_operation, c.value) for r in away for c in r.configs} == {(1, None)}
