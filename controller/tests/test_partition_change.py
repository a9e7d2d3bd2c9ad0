"""What becomes of one partition (R284-R289): rows of Kafka's ``PartitionChangeBuilder``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.image import Partition, changed
from ottla.controller.partition_change import Rules, change

D = bytes(15)
P = Partition((1, 2, 3), (1, 2, 3), 1, 5, 9, (D + b"\x81", D + b"\x82", D + b"\x83"))
ELR1, ELR2, PLAIN = Rules(1), Rules(2), Rules(1, elr=False)
UNCLEAN = Rules(1, elr=False, unclean=True)
ALL = (1, 2, 3)


def after(p: Partition, alive: Collection[int], rules: Rules, **wanted: Any) -> tuple[Any, ...] | None:
    """(leader, leader epoch step, isr, elr, last known, recovering) after the change; None where there is none."""
    record = change((D + b"\x05", 7), p, lambda i: i in alive, rules, **wanted)
    if record is None:
        return None
    assert (record.topic_id, record.partition_id) == (D + b"\x05", 7)
    n = changed(p, record)
    assert n.partition_epoch == p.partition_epoch + 1
    return n.leader, n.leader_epoch - p.leader_epoch, n.isr, n.elr, n.last_known_elr, n.recovering


NO_ISR = replace(P, leader=-1, isr=(), elr=(2, 3), last_known_elr=(1,))
LAST = replace(P, leader=-1, isr=(), elr=(), last_known_elr=(2,))
THIRD_LEADS = replace(P, leader=3)
STOPPED = replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(1,))
ROWS: list[tuple[str, Partition, Collection[int], Rules, dict[str, Any], tuple[Any, ...] | None]] = [
    ("nothing asked", P, ALL, ELR1, {}, None),
    ("a follower leaves", P, ALL, ELR1, {"isr": [1, 2]}, (1, 0, (1, 2), (), (), 0)),
    ("below the minimum it stays eligible", P, ALL, ELR2, {"isr": [1]}, (1, 0, (1,), (2, 3), (), 0)),
    ("at the minimum it does not", P, ALL, ELR2, {"isr": [1, 2]}, (1, 0, (1, 2), (), (), 0)),
    ("the leader goes: next in replica order", P, (2, 3), ELR1, {"isr": [2, 3]}, (2, 1, (2, 3), (), (), 0)),
    ("whoever is alive", P, (3,), ELR1, {"isr": [2, 3]}, (3, 1, (2, 3), (), (), 0)),
    ("only who is in sync", P, (2, 3), ELR1, {"isr": [3]}, (3, 1, (3,), (), (), 0)),
    (
        "the current leader stays before the first",
        replace(P, leader=3),
        ALL,
        ELR1,
        {"isr": [1, 3]},
        (3, 0, (1, 3), (), (), 0),
    ),
    ("the last goes: eligible, and known", replace(P, isr=(1,)), (), ELR1, {"isr": []}, (-1, 1, (), (1,), (1,), 0)),
    ("without ELR the last one stays in sync", replace(P, isr=(1,)), (), PLAIN, {"isr": []}, (-1, 1, (1,), (), (), 0)),
    (
        "it comes back, with ELR",
        replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(1,)),
        (1,),
        ELR1,
        {},
        (1, 1, (1,), (), (), 0),
    ),
    ("it comes back, without", replace(P, leader=-1, isr=(1,)), (1,), PLAIN, {}, (1, 1, (1,), (), (), 0)),
    ("an eligible one leads, alone in sync", NO_ISR, (3,), ELR2, {}, (3, 1, (3,), (2,), (), 0)),
    ("last known never while others are eligible", NO_ISR, (1,), ELR2, {}, None),
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
    ("still leaderless: known stays", replace(P, leader=-1, isr=(), elr=(1,), last_known_elr=(2,)), (), ELR1, {}, None),
]


@pytest.mark.parametrize(("name", "p", "alive", "rules", "wanted", "expected"), ROWS, ids=[r[0] for r in ROWS])
def test_a_partition_changes_as_kafka_changes_it(
    name: str, p: Partition, alive: Collection[int], rules: Rules, wanted: dict[str, Any], expected: Any
) -> None:
    assert after(p, alive, rules, **wanted) == expected


def test_a_replica_moves_to_another_directory_and_nothing_else_does() -> None:
    record = change((D + b"\x05", 7), P, lambda i: True, ELR1, directories={2: D + b"\x99"})
    assert record is not None
    assert record.directories == [D + b"\x81", D + b"\x99", D + b"\x83"]
    assert (record.isr, record.leader) == (None, -2)
    assert change((D + b"\x05", 7), P, lambda i: True, ELR1, directories={2: D + b"\x82"}) is None


def test_where_no_place_was_known_the_others_stay_unknown() -> None:
    record = change((D, 7), replace(P, directories=()), lambda i: True, ELR1, directories={2: D + b"\x99"})
    assert record is not None
    assert record.directories == [bytes(16), D + b"\x99", bytes(16)]
