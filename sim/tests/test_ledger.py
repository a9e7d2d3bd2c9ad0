"""The checker's book: what it must flag, and what it must let pass."""

from __future__ import annotations

import pytest

from sim.ledger import Ledger

P = ("t", 0)


@pytest.mark.parametrize(
    ("answer", "cut", "flagged"), [(9, False, []), (5, False, []), (4, False, ["offset-back"]), (0, True, [])]
)
def test_a_position_is_not_behind_what_was_acknowledged_when_it_was_asked_for(
    answer: int, cut: bool, flagged: list[str]
) -> None:
    ledger = Ledger(tried={P: 9})
    ledger.committed(P, 5, 0)
    asked_at = ledger.committed_to[P]
    if cut:
        ledger.power_cut({})
    else:
        ledger.committed(P, 9, 0)
    ledger.position_read(P, answer, asked_at)
    assert [name for name, _ in ledger.violations] == flagged


@pytest.mark.parametrize(
    ("generation", "cut", "flagged"), [(3, False, []), (2, False, ["CommitOfNobody"]), (2, True, [])]
)
def test_nobody_commits_once_a_newer_generation_has_begun(generation: int, cut: bool, flagged: list[str]) -> None:
    ledger = Ledger()
    ledger.led_into(3, 0)
    ledger.led_into(2, 0)
    newest, cuts = ledger.generation, ledger.power_cuts
    if cut:
        ledger.power_cut({})
    ledger.led_into(4, ledger.power_cuts)
    ledger.committed_in(generation, newest, cuts)
    assert [name for name, _ in ledger.violations] == flagged


def test_after_a_power_cut_generations_may_be_given_again() -> None:
    ledger = Ledger()
    ledger.led_into(3, 0)
    ledger.power_cut({})
    assert ledger.generation == 0
    ledger.led_into(3, 0)
    assert ledger.generation == 0, "an answer of before the cut comes late"
    ledger.led_into(2, 1)
    assert ledger.generation == 2
