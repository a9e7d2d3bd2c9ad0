"""Replicas on the move (R295-R297): rows of Kafka's ``PartitionReassignmentReplicas`` and ``...Revert``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.controller.image import Partition
from ottla.controller.moves import Ended, Move, Undone, ended, is_moving, toward, undone


def at(
    replicas: Sequence[int], isr: Sequence[int] = (), adding: Sequence[int] = (), removing: Sequence[int] = ()
) -> Partition:
    return Partition(tuple(replicas), tuple(isr or replicas), replicas[0], 1, 1, (), tuple(removing), tuple(adding))


TOWARD: list[tuple[str, Partition, list[int], Move]] = [
    ("somewhere else", at([3, 1, 2]), [6, 5, 4], Move((6, 5, 4, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
    ("one for another", at([1, 2, 3]), [1, 2, 4], Move((1, 2, 4, 3), (4,), (3,))),
    ("more", at([1]), [1, 3, 2], Move((1, 3, 2), (2, 3))),
    ("fewer", at([1, 2, 3]), [3], Move((3, 1, 2), (), (1, 2))),
    ("another order", at([1, 2, 3]), [2, 3, 1], Move((2, 3, 1))),
    ("where it is", at([1, 2]), [1, 2], Move((1, 2))),
    ("what comes counts as there", at([1, 3, 2], adding=[3], removing=[2]), [1, 4], Move((1, 4, 2, 3), (4,), (2, 3))),
    ("empty lists keep the old ones", at([1, 3, 2], adding=[3], removing=[2]), [1, 3, 2], Move((1, 3, 2), (3,), (2,))),
    ("one that came is to go", at([1, 3, 2], adding=[3], removing=[2]), [1, 2], Move((1, 2, 3), (3,), (3,))),
]


@pytest.mark.parametrize(("name", "p", "target", "expected"), TOWARD, ids=[r[0] for r in TOWARD])
def test_r295_a_move_has_all_who_stay_come_and_go(name: str, p: Partition, target: list[int], expected: Move) -> None:
    assert toward(p, target) == expected


ENDED: list[tuple[str, Move, Sequence[int], Ended | None]] = [
    ("no move", Move((1, 2)), (1, 2), None),
    ("the new one is not in sync", Move((1, 2, 4, 3), (4,), (3,)), (1, 2, 3), None),
    ("it is", Move((1, 2, 4, 3), (4,), (3,)), (3, 1, 2, 4), Ended((1, 2, 4), (1, 2, 4))),
    ("as many come as go: who stays may lag", Move((1, 2, 4, 3), (4,), (3,)), (3, 4), Ended((1, 2, 4), (4,))),
    ("only one of two that come", Move((4, 5, 1), (4, 5), (1,)), (1, 4), None),
    ("only who goes is in sync", Move((2, 1), (), (1,)), (1,), None),
    ("more go than come: all that stay must be in sync", Move((2, 3, 1), (), (1,)), (1, 2), None),
    ("they are", Move((2, 3, 1), (), (1,)), (3, 1, 2), Ended((2, 3), (3, 2))),
    ("nobody goes", Move((1, 2), (2,)), (1, 2), Ended((1, 2), (1, 2))),
    ("nobody would stay", Move((1,), (), (1,)), (1,), None),
    ("to come and to go at once is never through", Move((1, 2, 3), (3,), (3,)), (1, 2, 3), None),
]


@pytest.mark.parametrize(("name", "move", "isr", "expected"), ENDED, ids=[r[0] for r in ENDED])
def test_r296_a_move_is_through_when_who_comes_is_in_sync(
    name: str, move: Move, isr: Sequence[int], expected: Ended | None
) -> None:
    assert ended(move, isr) == expected


UNDONE: list[tuple[str, Partition, Undone | None]] = [
    ("who comes is taken back", at([1, 3, 2], [1, 3, 2], [3], [2]), Undone((1, 2), (1, 2), False)),
    ("only who comes was in sync", at([3, 1, 2], [3], [3], [2]), Undone((1, 2), (1,), True)),
    ("all of them come", at([3, 4], [3], [3, 4]), None),
]


@pytest.mark.parametrize(("name", "p", "expected"), UNDONE, ids=[r[0] for r in UNDONE])
def test_r297_what_is_left_without_who_comes(name: str, p: Partition, expected: Undone | None) -> None:
    assert undone(p) == expected


def test_a_partition_moves_while_somebody_comes_or_goes() -> None:
    moving = [is_moving(at([1, 2], adding=a, removing=r)) for a, r in (((), ()), ((2,), ()), ((), (2,)))]
    assert moving == [False, True, True]
