"""Reassignment state (R-295 to R-297): cases of Kafka's ``PartitionReassignmentReplicas`` and
``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.controller.metadata.image import PartitionRegistration
from ottla.controller.partitions.reassignment_state import (
    CompletedReassignment,
    Reassignment,
    ReassignmentRevert,
    complete_reassignment,
    is_reassignment_in_progress,
    reassignment_to,
    revert_reassignment,
)


def partition_with(
    replicas: Sequence[int], isr: Sequence[int] = (), adding: Sequence[int] = (), removing: Sequence[int] = ()
) -> PartitionRegistration:
    return PartitionRegistration(
        tuple(replicas), tuple(isr or replicas), replicas[0], 1, 1, (), tuple(removing), tuple(adding)
    )


TOWARD: list[tuple[str, PartitionRegistration, list[int], Reassignment]] = [
    ("somewhere else", partition_with([3, 1, 2]), [6, 5, 4], Reassignment((6, 5, 4, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
    ("one for another", partition_with([1, 2, 3]), [1, 2, 4], Reassignment((1, 2, 4, 3), (4,), (3,))),
    ("more", partition_with([1]), [1, 3, 2], Reassignment((1, 3, 2), (2, 3))),
    ("fewer", partition_with([1, 2, 3]), [3], Reassignment((3, 1, 2), (), (1, 2))),
    ("another order", partition_with([1, 2, 3]), [2, 3, 1], Reassignment((2, 3, 1))),
    ("where it is", partition_with([1, 2]), [1, 2], Reassignment((1, 2))),
    (
        "adding replica counts as current",
        partition_with([1, 3, 2], adding=[3], removing=[2]),
        [1, 4],
        Reassignment((1, 4, 2, 3), (4,), (2, 3)),
    ),
    (
        "empty lists keep the old ones",
        partition_with([1, 3, 2], adding=[3], removing=[2]),
        [1, 3, 2],
        Reassignment((1, 3, 2), (3,), (2,)),
    ),
    (
        "adding replica is removed",
        partition_with([1, 3, 2], adding=[3], removing=[2]),
        [1, 2],
        Reassignment((1, 2, 3), (3,), (3,)),
    ),
]


@pytest.mark.behaviour("R-295")
@pytest.mark.parametrize(("name", "p", "target", "expected"), TOWARD, ids=[r[0] for r in TOWARD])
def test_reassignment_to_contains_kept_adding_and_removing_replicas(
    name: str, p: PartitionRegistration, target: list[int], expected: Reassignment
) -> None:
    assert reassignment_to(p, target) == expected


ENDED: list[tuple[str, Reassignment, Sequence[int], CompletedReassignment | None]] = [
    ("no move", Reassignment((1, 2)), (1, 2), None),
    ("the new one is not in sync", Reassignment((1, 2, 4, 3), (4,), (3,)), (1, 2, 3), None),
    (
        "the new one is in sync",
        Reassignment((1, 2, 4, 3), (4,), (3,)),
        (3, 1, 2, 4),
        CompletedReassignment((1, 2, 4), (1, 2, 4)),
    ),
    (
        "as many added as removed: kept ones may lag",
        Reassignment((1, 2, 4, 3), (4,), (3,)),
        (3, 4),
        CompletedReassignment((1, 2, 4), (4,)),
    ),
    ("one of two added in sync", Reassignment((4, 5, 1), (4, 5), (1,)), (1, 4), None),
    ("only removing replica in sync", Reassignment((2, 1), (), (1,)), (1,), None),
    ("more removed than added: kept ones must be in sync", Reassignment((2, 3, 1), (), (1,)), (1, 2), None),
    (
        "more removed than added: kept ones in sync",
        Reassignment((2, 3, 1), (), (1,)),
        (3, 1, 2),
        CompletedReassignment((2, 3), (3, 2)),
    ),
    ("no removal", Reassignment((1, 2), (2,)), (1, 2), CompletedReassignment((1, 2), (1, 2))),
    ("all removed", Reassignment((1,), (), (1,)), (1,), None),
    ("added and removed at once is never complete", Reassignment((1, 2, 3), (3,), (3,)), (1, 2, 3), None),
]


@pytest.mark.behaviour("R-296")
@pytest.mark.parametrize(("name", "move", "isr", "expected"), ENDED, ids=[r[0] for r in ENDED])
def test_complete_reassignment_requires_added_replicas_in_sync(
    name: str, move: Reassignment, isr: Sequence[int], expected: CompletedReassignment | None
) -> None:
    assert complete_reassignment(move, isr) == expected


UNDONE: list[tuple[str, PartitionRegistration, ReassignmentRevert | None]] = [
    (
        "adding replica is reverted",
        partition_with([1, 3, 2], [1, 3, 2], [3], [2]),
        ReassignmentRevert((1, 2), (1, 2), False),
    ),
    (
        "only adding replica was in sync",
        partition_with([3, 1, 2], [3], [3], [2]),
        ReassignmentRevert((1, 2), (1,), True),
    ),
    ("all replicas are adding", partition_with([3, 4], [3], [3, 4]), None),
]


@pytest.mark.behaviour("R-297")
@pytest.mark.parametrize(("name", "p", "expected"), UNDONE, ids=[r[0] for r in UNDONE])
def test_revert_reassignment_removes_added_replicas(
    name: str, p: PartitionRegistration, expected: ReassignmentRevert | None
) -> None:
    assert revert_reassignment(p) == expected


def test_is_reassignment_in_progress_with_adding_or_removing_replicas() -> None:
    moving = [
        is_reassignment_in_progress(partition_with([1, 2], adding=a, removing=r))
        for a, r in (((), ()), ((2,), ()), ((), (2,)))
    ]
    assert moving == [False, True, True]
