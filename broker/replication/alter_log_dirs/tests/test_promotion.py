"""Decision tables for future logs (R-342)."""

from __future__ import annotations

from math import inf

import pytest

from ottla.broker.replication.alter_log_dirs.promotion import (
    ASSIGNMENT_RETRY_MS,
    FutureLogDecision,
    PromotionStep,
    decide_future_log,
    next_promotion_step,
)


@pytest.mark.parametrize(
    ("near", "expected", "since_assignment_ms", "wanted"),
    [
        (False, False, inf, PromotionStep.COPY),
        (False, False, 0, PromotionStep.COPY),  # records appended since the controller was asked
        (False, True, 0, PromotionStep.COPY),
        (True, False, inf, PromotionStep.REQUEST_ASSIGNMENT),
        (True, False, 0, PromotionStep.WAIT),
        (True, False, ASSIGNMENT_RETRY_MS - 1, PromotionStep.WAIT),
        (True, False, ASSIGNMENT_RETRY_MS, PromotionStep.REQUEST_ASSIGNMENT),
        (True, True, 0, PromotionStep.SWAP),
        (True, True, inf, PromotionStep.SWAP),  # an earlier process had asked
    ],
)
def test_next_promotion_step_by_lag_and_assignment(
    near: bool, expected: bool, since_assignment_ms: float, wanted: PromotionStep
) -> None:
    assert next_promotion_step(near=near, is_assigned=expected, since_assignment_ms=since_assignment_ms) is wanted


OLDER, SAME, NEWER = (3, 10), (3, 11), (4, 11)


@pytest.mark.parametrize(
    ("expected", "newness", "current", "wanted"),
    [
        (False, SAME, SAME, FutureLogDecision.RESUME),
        (False, NEWER, OLDER, FutureLogDecision.RESUME),  # the current log was truncated; the future log will be
        (False, SAME, None, FutureLogDecision.KEEP),
        (True, SAME, None, FutureLogDecision.PROMOTE),
        (True, SAME, SAME, FutureLogDecision.PROMOTE),
        (True, NEWER, SAME, FutureLogDecision.PROMOTE),  # written to after they had changed places, which was lost
        (True, OLDER, SAME, FutureLogDecision.RESUME),  # Kafka takes it, and what it lacks is gone
    ],
)
def test_decide_future_log_by_assignment_and_newness(
    expected: bool, newness: tuple[int, int], current: tuple[int, int] | None, wanted: FutureLogDecision
) -> None:
    assert decide_future_log(is_assigned=expected, newness=newness, current=current) is wanted


@pytest.mark.parametrize(
    ("expected", "current", "wanted"),
    [
        (True, None, FutureLogDecision.KEEP),  # Kafka uses it, and further records of the current log are gone
        (True, SAME, FutureLogDecision.PROMOTE),
        (False, None, FutureLogDecision.KEEP),
        (False, SAME, FutureLogDecision.RESUME),
    ],
)
def test_decide_future_log_keeps_it_when_only_copy_elsewhere_may_return(
    expected: bool, current: tuple[int, int] | None, wanted: FutureLogDecision
) -> None:
    assert decide_future_log(is_assigned=expected, newness=SAME, current=current, only_here=True) is wanted
