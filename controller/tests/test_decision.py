"""Helpers of decisions that are made in steps: they pause also where they leave items out."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.controller.decision import PAUSE_EVERY, distinct, firsts, gathered

MANY = 10 * PAUSE_EVERY


def drained(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What steps give, and how many pauses there are."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def test_gathered_pauses_every_hundred_items() -> None:
    assert drained(gathered(iter(range(MANY)))) == (list(range(MANY)), 10)


def test_distinct_keeps_the_order_and_pauses_among_equal_items() -> None:
    found, pauses = drained(distinct(["b", "a"] * (MANY // 2)))
    assert (list(found), pauses) == (["b", "a"], 10)


def test_firsts_pauses_while_it_leaves_items_out() -> None:
    found = list(firsts(["a", *["b"] * MANY], lambda item: item, {"b"}))
    assert [item for item in found if item is not None] == [(1, "a", False), (2, "b", True)]
    assert found.count(None) == 10
