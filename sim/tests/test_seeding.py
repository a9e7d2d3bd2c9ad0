"""What is said of a bug that was planted: found, not found, or never even reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.tests.seeded_faults import controller_faults
from sim.tests.seeded_faults.seeding import FOUND, NOT_FOUND, NOT_REACHED, SeededFault, run_until_detected

PLANT = SeededFault(lambda: None, "lost ghost")


def shows(*kinds: str) -> Any:
    return SimpleNamespace(violations=[(kind, "somewhere") for kind in kinds])


def calls_it() -> Any:
    controller_faults._nothing()
    return shows()


def ends() -> Any:
    raise BaseExceptionGroup("a node ended", [KeyError("x")])


@pytest.mark.parametrize(
    ("second", "status", "runs"),
    [
        (lambda: shows("stuck", "ghost"), FOUND, 2),
        (ends, FOUND, 2),
        (lambda: shows("stuck"), NOT_REACHED, 3 + 1),
        (calls_it, NOT_REACHED, 3 + 1),
    ],
    ids=["shown", "ended", "shown as something else", "called in another seed"],
)
def test_a_bug_is_found_by_a_violation_of_its_names(second: Any, status: int, runs: int) -> None:
    asked: list[int] = []

    def run(seed: int) -> Any:
        asked.append(seed)
        return second() if seed == 2 else shows()

    assert run_until_detected(PLANT, run, 3) == status
    assert asked == [1, 2, 3, 1][:runs]


def test_a_bug_that_is_not_found_was_reached_or_else_it_proves_nothing() -> None:
    assert run_until_detected(PLANT, lambda seed: calls_it(), 2) == NOT_FOUND
    assert run_until_detected(PLANT, lambda seed: shows(), 2) == NOT_REACHED
