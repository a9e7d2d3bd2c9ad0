"""The table of what is next about a copy in another directory (R342)."""

from __future__ import annotations

from math import inf

import pytest

from ottla.broker.replica.promotion import ASK_AGAIN_MS, Found, Next, found, next_of


@pytest.mark.parametrize(
    ("near", "told", "asked_ago_ms", "wanted"),
    [
        (False, False, inf, Next.COPY),
        (False, False, 0, Next.COPY),  # what has come since the controller was asked
        (False, True, 0, Next.COPY),
        (True, False, inf, Next.ASK),
        (True, False, 0, Next.WAIT),
        (True, False, ASK_AGAIN_MS - 1, Next.WAIT),
        (True, False, ASK_AGAIN_MS, Next.ASK),
        (True, True, 0, Next.SWAP),
        (True, True, inf, Next.SWAP),  # an earlier process had asked
    ],
)
def test_what_is_next(near: bool, told: bool, asked_ago_ms: float, wanted: Next) -> None:
    assert next_of(near=near, told=told, asked_ago_ms=asked_ago_ms) is wanted


OLDER, SAME, NEWER = (3, 10), (3, 11), (4, 11)


@pytest.mark.parametrize(
    ("told", "newness", "current", "wanted"),
    [
        (False, SAME, SAME, Found.GOES_ON),
        (False, NEWER, OLDER, Found.GOES_ON),  # the log was cut; the copy will be
        (False, SAME, None, Found.STAYS),
        (True, SAME, None, Found.COUNTS),
        (True, SAME, SAME, Found.COUNTS),
        (True, NEWER, SAME, Found.COUNTS),  # written to after they had changed places, which was lost
        (True, OLDER, SAME, Found.GOES_ON),  # Kafka takes it, and what it lacks is gone
    ],
)
def test_what_becomes_of_a_copy_that_was_left(
    told: bool, newness: tuple[int, int], current: tuple[int, int] | None, wanted: Found
) -> None:
    assert found(told=told, newness=newness, current=current) is wanted


@pytest.mark.parametrize(
    ("told", "current", "wanted"),
    [
        (True, None, Found.STAYS),  # Kafka takes it, and what the log had besides is gone
        (True, SAME, Found.COUNTS),
        (False, None, Found.STAYS),
        (False, SAME, Found.GOES_ON),
    ],
)
def test_a_copy_does_not_count_while_only_a_log_that_may_be_seen_again_has_all(
    told: bool, current: tuple[int, int] | None, wanted: Found
) -> None:
    assert found(told=told, newness=SAME, current=current, only_here=True) is wanted
