"""Delivery checker: cases that it must flag, and cases that it must accept."""

from __future__ import annotations

import pytest

from sim.checkers.delivery_checker import DeliveryChecker

P = ("t", 0)


@pytest.mark.parametrize(
    ("answer", "cut", "flagged"), [(9, False, []), (5, False, []), (4, False, ["offset-back"]), (0, True, [])]
)
def test_verify_committed_offset_below_acknowledged_one_is_reported(answer: int, cut: bool, flagged: list[str]) -> None:
    ledger = DeliveryChecker(attempted_commits={P: 9})
    ledger.record_commit(P, 5, 0)
    requested_at = ledger.committed_to[P]
    if cut:
        ledger.record_power_cut({})
    else:
        ledger.record_commit(P, 9, 0)
    ledger.verify_committed_offset(P, answer, requested_at)
    assert [name for name, _ in ledger.violations] == flagged


@pytest.mark.parametrize(
    ("generation", "cut", "flagged"), [(3, False, []), (2, False, ["StaleMemberCommit"]), (2, True, [])]
)
def test_verify_commit_of_older_generation_is_reported(generation: int, cut: bool, flagged: list[str]) -> None:
    ledger = DeliveryChecker()
    ledger.record_generation(3, 0)
    ledger.record_generation(2, 0)
    newest, cuts = ledger.generation, ledger.power_cuts
    if cut:
        ledger.record_power_cut({})
    ledger.record_generation(4, ledger.power_cuts)
    ledger.verify_commit_generation(generation, newest, cuts)
    assert [name for name, _ in ledger.violations] == flagged


def test_record_generation_after_power_cut_accepts_repeated_one() -> None:
    ledger = DeliveryChecker()
    ledger.record_generation(3, 0)
    ledger.record_power_cut({})
    assert ledger.generation == 0
    ledger.record_generation(3, 0)
    assert ledger.generation == 0, "an answer of before the cut comes late"
    ledger.record_generation(2, 1)
    assert ledger.generation == 2
