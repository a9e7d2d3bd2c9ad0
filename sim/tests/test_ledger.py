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
