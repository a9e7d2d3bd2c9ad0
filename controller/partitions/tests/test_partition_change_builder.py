"""Partition changes (R-284 to R-289): cases of Kafka's ``PartitionChangeBuilder``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.metadata.image import PartitionRegistration, merge_partition_change
from ottla.controller.partitions.partition_change_builder import (
    PartitionChangeRules,
    PartitionElection,
    build_partition_change,
)
from ottla.controller.partitions.reassignment_state import Reassignment

D = bytes(15)
P = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 5, 9, (D + b"\x81", D + b"\x82", D + b"\x83"))
ELR1, ELR2, PLAIN = PartitionChangeRules(1), PartitionChangeRules(2), PartitionChangeRules(1, is_elr_enabled=False)
UNCLEAN = PartitionChangeRules(1, is_elr_enabled=False, allows_unclean_election=True)
ALL = (1, 2, 3)


def after(
    p: PartitionRegistration, alive: Collection[int], rules: PartitionChangeRules, **wanted: Any
) -> tuple[Any, ...] | None:
    """(leader, leader epoch step, isr, elr, last known, recovering) after the change; None where there is none."""
    record = build_partition_change((D + b"\x05", 7), p, lambda i: i in alive, rules, **wanted)
    if record is None:
        return None
    assert (record.topic_id, record.partition_id) == (D + b"\x05", 7)
    n = merge_partition_change(p, record)
    assert n.partition_epoch == p.partition_epoch + 1
    return n.leader, n.leader_epoch - p.leader_epoch, n.isr, n.elr, n.last_known_elr, n.recovering


NO_ISR = replace(P, leader=-1, isr=(), elr=(2, 3), last_known_elr=(1,))
LAST = replace(P, leader=-1, isr=(), elr=(), last_known_elr=(2,))
THIRD_LEADS = replace(P, leader=3)
STOPPED = replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(1,))
ROWS: list[
    tuple[str, PartitionRegistration, Collection[int], PartitionChangeRules, dict[str, Any], tuple[Any, ...] | None]
] = [
    ("no change requested", P, ALL, ELR1, {}, None),
    ("a follower leaves", P, ALL, ELR1, {"isr": [1, 2]}, (1, 0, (1, 2), (), (), 0)),
    ("below the minimum it stays eligible", P, ALL, ELR2, {"isr": [1]}, (1, 0, (1,), (2, 3), (), 0)),
    ("at the minimum it does not", P, ALL, ELR2, {"isr": [1, 2]}, (1, 0, (1, 2), (), (), 0)),
    ("the leader goes: next in replica order", P, (2, 3), ELR1, {"isr": [2, 3]}, (2, 1, (2, 3), (), (), 0)),
    ("only active replica", P, (3,), ELR1, {"isr": [2, 3]}, (3, 1, (2, 3), (), (), 0)),
    ("only replica in sync", P, (2, 3), ELR1, {"isr": [3]}, (3, 1, (3,), (), (), 0)),
    (
        "the current leader stays before the first",
        replace(P, leader=3),
        ALL,
        ELR1,
        {"isr": [1, 3]},
        (3, 0, (1, 3), (), (), 0),
    ),
    (
        "last replica leaves: eligible and last known",
        replace(P, isr=(1,)),
        (),
        ELR1,
        {"isr": []},
        (-1, 1, (), (1,), (1,), 0),
    ),
    ("without ELR the last one stays in sync", replace(P, isr=(1,)), (), PLAIN, {"isr": []}, (-1, 1, (1,), (), (), 0)),
    (
        "last replica returns, with ELR",
        replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(1,)),
        (1,),
        ELR1,
        {},
        (1, 1, (1,), (), (), 0),
    ),
    ("last replica returns, without ELR", replace(P, leader=-1, isr=(1,)), (1,), PLAIN, {}, (1, 1, (1,), (), (), 0)),
    ("an eligible one leads, alone in sync", NO_ISR, (3,), ELR2, {}, (3, 1, (3,), (2,), (), 0)),
    ("last known not elected while others are eligible", NO_ISR, (1,), ELR2, {}, None),
    ("last known, recovering", LAST, (2,), ELR1, {}, (2, 1, (2,), (), (), 1)),
    ("last known must be alive", LAST, (1, 3), ELR1, {}, None),
    ("last known must be one", replace(LAST, last_known_elr=(1, 2)), (1, 2), ELR1, {}, None),
    ("last known only with ELR", LAST, (2,), PLAIN, {}, None),
    ("in sync beats eligible", replace(P, leader=-1, isr=(1,), elr=(2,)), (2,), ELR2, {}, None),
    ("uncleanly lost", replace(P, isr=(1,)), (), ELR1, {"isr": [], "lost": [1]}, (-1, 1, (), (), (1,), 0)),
    ("unclean election", replace(P, isr=(1,)), (3,), UNCLEAN, {"isr": []}, (3, 1, (3,), (), (), 1)),
    ("a clean one before", P, (2, 3), UNCLEAN, {"isr": [3]}, (3, 1, (3,), (), (), 0)),
    ("none allowed", replace(P, isr=(1,)), (3,), PLAIN, {"isr": []}, (-1, 1, (1,), (), (), 0)),
    ("ELR given up when switched off", replace(P, elr=(3,), isr=(1, 2)), ALL, PLAIN, {}, (1, 0, (1, 2), (), (), 0)),
    (
        "preferred: the first",
        THIRD_LEADS,
        ALL,
        ELR1,
        {"election": PartitionElection.PREFERRED},
        (1, 1, (1, 2, 3), (), (), 0),
    ),
    (
        "preferred: first not in sync keeps leader",
        replace(P, leader=3, isr=(2, 3)),
        ALL,
        ELR1,
        {"election": PartitionElection.PREFERRED},
        None,
    ),
    (
        "preferred: else the next",
        replace(P, leader=-1, isr=(2, 3)),
        (1, 3),
        ELR1,
        {"election": PartitionElection.PREFERRED},
        (3, 1, (2, 3), (), (), 0),
    ),
    (
        "preferred: never uncleanly",
        replace(P, leader=-1, isr=(1,)),
        (3,),
        UNCLEAN,
        {"election": PartitionElection.PREFERRED},
        None,
    ),
    (
        "preferred: the last known",
        LAST,
        (2,),
        ELR1,
        {"election": PartitionElection.PREFERRED},
        (2, 1, (2,), (), (), 1),
    ),
    (
        "unclean where asked for",
        replace(P, leader=-1, isr=(1,)),
        (3,),
        PLAIN,
        {"election": PartitionElection.UNCLEAN},
        (3, 1, (3,), (), (), 1),
    ),
    (
        "online where asked for",
        replace(P, leader=-1, isr=(1,)),
        (3,),
        UNCLEAN,
        {"election": PartitionElection.ONLINE},
        None,
    ),
    ("still leaderless: known stays", replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(2,)), (), ELR1, {}, None),
]


@pytest.mark.behaviour("P-52", "P-53")
@pytest.mark.parametrize(("name", "p", "alive", "rules", "wanted", "expected"), ROWS, ids=[r[0] for r in ROWS])
def test_build_partition_change_equals_kafka(
    name: str,
    p: PartitionRegistration,
    alive: Collection[int],
    rules: PartitionChangeRules,
    wanted: dict[str, Any],
    expected: Any,
) -> None:
    assert after(p, alive, rules, **wanted) == expected


def test_build_partition_change_directory_change_keeps_other_fields() -> None:
    record = build_partition_change((D + b"\x05", 7), P, lambda i: True, ELR1, directories={2: D + b"\x99"})
    assert record is not None
    assert record.directories == [D + b"\x81", D + b"\x99", D + b"\x83"]
    assert (record.isr, record.leader) == (None, -2)
    assert build_partition_change((D + b"\x05", 7), P, lambda i: True, ELR1, directories={2: D + b"\x82"}) is None


def test_build_partition_change_unknown_directories_stay_unassigned() -> None:
    record = build_partition_change(
        (D, 7), replace(P, directories=()), lambda i: True, ELR1, directories={2: D + b"\x99"}
    )
    assert record is not None
    assert record.directories == [bytes(16), D + b"\x99", bytes(16)]


MOVES: list[tuple[str, PartitionRegistration, Reassignment, dict[str, Any], dict[str, Any]]] = [
    (
        "begins",
        P,
        Reassignment((1, 2, 4, 3), (4,), (3,)),
        {},
        {"replicas": [1, 2, 4, 3], "adding": [4], "removing": [3]},
    ),
    (
        "same leader, new epoch",
        P,
        Reassignment((1, 2)),
        {"isr": [1, 2]},
        {"replicas": [1, 2], "isr": [1, 2], "leader": 1},
    ),
    ("a new order: no new epoch", P, Reassignment((3, 2, 1)), {}, {"replicas": [3, 2, 1]}),
    (
        "is through at once",
        P,
        Reassignment((2, 3, 1), (), (1,)),
        {},
        {"replicas": [2, 3], "isr": [2, 3], "leader": 2},
    ),
    (
        "is through as the in-sync set grows",
        replace(P, replicas=(2, 4, 1), isr=(1, 2), adding=(4,), removing=(1,), directories=(D + b"\x82",) * 3),
        Reassignment((2, 4, 1), (4,), (1,)),
        {"isr": [1, 2, 4]},
        {"replicas": [2, 4], "isr": [2, 4], "leader": 2, "adding": [], "removing": []},
    ),
]


@pytest.mark.behaviour("R-284", "R-296")
@pytest.mark.parametrize(("name", "p", "move", "wanted", "expected"), MOVES, ids=[r[0] for r in MOVES])
def test_build_partition_change_reassignment_equals_kafka(
    name: str, p: PartitionRegistration, move: Reassignment, wanted: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = build_partition_change((D, 7), p, lambda i: True, ELR1, move=move, directories={4: D + b"\x84"}, **wanted)
    assert record is not None
    lie_at = {**dict(zip(p.replicas, p.directories, strict=True)), 4: D + b"\x84"}
    replicas = expected["replicas"]
    assert record.directories == ([lie_at[i] for i in replicas] if record.directories is not None else None)
    assert (record.directories is None) == ([lie_at[i] for i in replicas] == list(p.directories))
    found = {
        "replicas": record.replicas,
        "adding": record.adding_replicas,
        "removing": record.removing_replicas,
        "isr": record.isr,
        "leader": None if record.leader == -2 else record.leader,
    }
    assert {k: v for k, v in found.items() if v is not None} == expected


def test_build_partition_change_removed_replica_is_not_in_elr() -> None:
    """The log of a removed replica is deleted. Kafka keeps the replica in the ELR, and fails at the next validation."""
    moving = replace(P, replicas=(4, 1, 2), isr=(1, 4), adding=(4,), removing=(1,), elr=(2,))
    record = build_partition_change((D, 7), moving, lambda i: False, ELR2)
    assert record is not None
    assert (record.replicas, record.isr, record.leader) == ([4, 2], [4], -1)
    assert (record.eligible_leader_replicas, record.last_known_elr) == (None, None)
    given_up = build_partition_change((D, 7), moving, lambda i: False, ELR2, isr=[4], move=Reassignment((4, 1, 2)))
    assert given_up is not None
    assert (given_up.eligible_leader_replicas, given_up.last_known_elr) == ([1, 2], [1])
    forgotten = build_partition_change(
        (D, 7), replace(NO_ISR, elr=()), lambda i: False, ELR1, move=Reassignment((2, 3))
    )
    assert forgotten is not None
    assert (forgotten.replicas, forgotten.last_known_elr) == ([2, 3], [])


def test_build_partition_change_completes_active_reassignment() -> None:
    moving = replace(P, replicas=(2, 4, 1), isr=(1, 2), leader=2, adding=(4,), removing=(1,), directories=())
    record = build_partition_change((D, 7), moving, lambda i: True, ELR1, isr=[2, 1, 4])
    assert record is not None
    assert (record.replicas, record.isr, record.adding_replicas, record.removing_replicas) == ([2, 4], [2, 4], [], [])
    assert (record.leader, record.directories) == (2, [bytes(16), bytes(16)])
