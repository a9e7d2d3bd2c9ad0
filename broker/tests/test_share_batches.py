"""Delivery states of neighbouring records as few batches as can say them (item 234)."""

from __future__ import annotations

import pytest

from ottla.broker.share.batches import StateBatch, combine

FREE, DONE, GONE = 0, 2, 4
B = StateBatch


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
def test_states_are_combined(
    rule: str, old: list[StateBatch], new: list[StateBatch], start: int, out: list[StateBatch]
) -> None:
    assert combine(old, new, start) == out, rule
