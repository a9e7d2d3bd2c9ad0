"""Combination of delivery states of adjacent records into few batches (C-234)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ottla.broker.share_state import state_batches
from ottla.broker.share_state.state_batches import PersisterStateBatch, combine_state_batches

FREE, DONE, GONE = 0, 2, 4
B = PersisterStateBatch


@pytest.mark.parametrize(
    ("rule", "old", "new", "start", "out"),
    [
        ("nothing is nothing", [], [], -1, []),
        ("one is left as it is", [B(0, 9, 1, FREE)], [], -1, [B(0, 9, 1, FREE)]),
        ("what lies before the start goes", [B(0, 4, 1, FREE)], [B(5, 9, 1, DONE)], 5, [B(5, 9, 1, DONE)]),
        ("what the start cuts keeps its rest", [B(0, 9, 1, FREE)], [], 5, [B(5, 9, 1, FREE)]),
        ("neighbours that are alike are one", [B(0, 4, 1, DONE)], [B(5, 9, 1, DONE)], -1, [B(0, 9, 1, DONE)]),
        (
            "neighbours that differ stay two",
            [B(0, 4, 1, DONE)],
            [B(5, 9, 2, DONE)],
            -1,
            [B(0, 4, 1, DONE), B(5, 9, 2, DONE)],
        ),
        (
            "a gap parts those that are alike",
            [B(0, 3, 1, DONE)],
            [B(5, 9, 1, DONE)],
            -1,
            [B(0, 3, 1, DONE), B(5, 9, 1, DONE)],
        ),
        ("the higher count wins", [B(0, 9, 1, GONE)], [B(0, 9, 2, FREE)], -1, [B(0, 9, 2, FREE)]),
        ("at equal counts the further state wins", [B(0, 9, 1, DONE)], [B(0, 9, 1, FREE)], -1, [B(0, 9, 1, DONE)]),
        (
            "a newer one in the middle cuts the older in two",
            [B(0, 9, 1, FREE)],
            [B(3, 5, 2, DONE)],
            -1,
            [B(0, 2, 1, FREE), B(3, 5, 2, DONE), B(6, 9, 1, FREE)],
        ),
        ("an older one inside a newer goes", [B(3, 5, 1, FREE)], [B(0, 9, 2, DONE)], -1, [B(0, 9, 2, DONE)]),
        (
            "an older one keeps what stands out",
            [B(3, 9, 1, FREE)],
            [B(0, 5, 2, DONE)],
            -1,
            [B(0, 5, 2, DONE), B(6, 9, 1, FREE)],
        ),
        (
            "a newer one cuts the end off",
            [B(0, 5, 1, FREE)],
            [B(3, 9, 2, DONE)],
            -1,
            [B(0, 2, 1, FREE), B(3, 9, 2, DONE)],
        ),
        (
            "what is cut out meets the next one too",
            [B(0, 9, 1, FREE), B(5, 12, 2, FREE)],
            [B(7, 8, 3, DONE)],
            -1,
            [B(0, 4, 1, FREE), B(5, 6, 2, FREE), B(7, 8, 3, DONE), B(9, 12, 2, FREE)],
        ),
    ],
)
def test_combine_state_batches_merges_old_and_new(
    rule: str,
    old: list[PersisterStateBatch],
    new: list[PersisterStateBatch],
    start: int,
    out: list[PersisterStateBatch],
) -> None:
    assert combine_state_batches(old, new, start) == out, rule


@pytest.mark.parametrize("count_of", [lambda n: n + 1, lambda n: 300 - n, lambda n: n * 7919 % 97])
@pytest.mark.parametrize("first_of", [lambda n: 0, lambda n: n])
def test_combine_state_batches_of_many_overlaps_is_linear(
    monkeypatch: pytest.MonkeyPatch, count_of: Callable[[int], int], first_of: Callable[[int], int]
) -> None:
    pushed = []

    def push(heap: list[Any], item: Any) -> None:
        pushed.append(item)
        heapq.heappush(heap, item)

    monkeypatch.setattr(state_batches, "heappush", push)
    some = [B(first_of(n), n + 300, count_of(n), FREE) for n in range(300)]
    combine_state_batches((), some, -1)
    assert len(pushed) <= 2 * len(some)


@pytest.mark.parametrize("seed", range(50))
def test_combine_state_batches_keeps_most_advanced_state_per_offset(seed: int) -> None:
    rng = random.Random(seed)

    def some() -> list[PersisterStateBatch]:
        firsts = (rng.randrange(30) for _ in range(rng.randrange(2, 9)))
        return [B(n, n + rng.choice((0, 2, 9)), rng.randint(1, 3), rng.choice((FREE, DONE))) for n in firsts]

    old, new, start = some(), some(), rng.choice((-1, 5))
    out = combine_state_batches(old, new, start)
    expected: dict[int, tuple[int, int]] = {}
    for batch in (*old, *new):
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            expected[offset] = max(batch.progress, expected.get(offset, (0, 0)))
    assert {n: batch.progress for batch in out for n in range(batch.first_offset, batch.last_offset + 1)} == expected
    assert all(one.last_offset < other.first_offset for one, other in pairwise(out))
