"""The checker's book: what it must flag, and what it must let pass."""

from __future__ import annotations

import pytest

from sim.checkers.delivery_checker import DeliveryChecker

P = ("t", 0)


@pytest.mark.parametrize(
    ("answer", "cut", "flagged"), [(9, False, []), (5, False, []), (4, False, ["offset-back"]), (0, True, [])]
)
def test_a_position_is_not_behind_what_was_acknowledged_when_it_was_asked_for(
    answer: int, cut: bool, flagged: list[str]
) -> None:
    ledger = DeliveryChecker(attempted_commits={P: 9})
    ledger.record_commit(P, 5, 0)
    asked_at = ledger.committed_to[P]
    if cut:
        ledger.record_power_cut({})
    else:
        ledger.record_commit(P, 9, 0)
    ledger.verify_committed_offset(P, answer, asked_at)
    assert [name for name, _ in ledger.violations] == flagged


@pytest.mark.parametrize(
    ("generation", "cut", "flagged"), [(3, False, []), (2, False, ["StaleMemberCommit"]), (2, True, [])]
)
def test_nobody_commits_once_a_newer_generation_has_begun(generation: int, cut: bool, flagged: list[str]) -> None:
    ledger = DeliveryChecker()
    ledger.record_generation(3, 0)
    ledger.record_generation(2, 0)
    newest, cuts = ledger.generation, ledger.power_cuts
    if cut:
        ledger.record_power_cut({})
    ledger.record_generation(4, ledger.power_cuts)
    ledger.verify_commit_generation(generation, newest, cuts)
    assert [name for name, _ in ledger.violations] == flagged


def test_after_a_power_cut_generations_may_be_given_again() -> None:
    ledger = DeliveryChecker()
    ledger.record_generation(3, 0)
    ledger.record_power_cut({})
    assert ledger.generation == 0
    ledger.record_generation(3, 0)
    assert ledger.generation == 0, "an answer of before the cut comes late"
    ledger.record_generation(2, 1)
    assert ledger.generation == 2
