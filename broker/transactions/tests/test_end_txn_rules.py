"""Decision tables of EndTxn by state and version, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.transactions import end_txn_rules
from ottla.broker.transactions.end_txn_rules import EndTxnDecision
from ottla.broker.transactions.tests.test_transition_rules import LAST, txn, verdict
from ottla.broker.transactions.transaction_metadata import (
    STATES_BY_NAME,
    S,
)
from ottla.wire.errors import ErrorCode

# ---------------------------------------------------------------------- EndTxn of version 1, C-131

CLASSIC = """
Empty           48         48
Ongoing         go         go
PrepareAbort    51         48
PrepareCommit   48         51
CompleteAbort   done       48
CompleteCommit  48         done
"""
WORDS = {"go": EndTxnDecision.PREPARE, "done": EndTxnDecision.ALREADY_COMPLETE}


def meant(word: str) -> Any:
    return WORDS[word] if word in WORDS else ErrorCode(int(word))


@pytest.mark.behaviour("C-131")
@pytest.mark.parametrize("line", CLASSIC.strip().splitlines())
def test_end_txn_version_1_decision_by_state(line: str) -> None:
    title, abort, commit = line.split()
    known = txn(STATES_BY_NAME[title])
    assert verdict(end_txn_rules.decide_without_epoch_bump, known, 10, 4, commits=False) == meant(abort)
    assert verdict(end_txn_rules.decide_without_epoch_bump, known, 10, 4, commits=True) == meant(commit)
    for commits in (True, False):
        for epoch in (3, 5):
            assert (
                verdict(end_txn_rules.decide_without_epoch_bump, known, 10, epoch, commits=commits, pending=True)
                is ErrorCode.PRODUCER_FENCED
            )
        wrong = verdict(end_txn_rules.decide_without_epoch_bump, known, 11, 3, commits=commits, pending=True)
        assert wrong is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        on_its_way = verdict(end_txn_rules.decide_without_epoch_bump, known, 10, 4, commits=commits, pending=True)
        assert on_its_way is ErrorCode.CONCURRENT_TRANSACTIONS


# ---------------------------------------------------------------------- EndTxn of version 2, C-132

WITH_BUMP = """
Empty           90    go   90    48
Ongoing         90    go   90    go
PrepareAbort    51    90   48    90
PrepareCommit   48    90   51    90
CompleteAbort   done  go   48    48
CompleteCommit  48    go   done  48
"""


@pytest.mark.behaviour("C-132")
@pytest.mark.parametrize("line", WITH_BUMP.strip().splitlines())
def test_end_txn_version_2_decision_by_state(line: str) -> None:
    title, abort_retry, abort, commit_retry, commit = line.split()
    known = txn(STATES_BY_NAME[title])
    rule = end_txn_rules.decide_with_epoch_bump
    assert verdict(rule, known, 10, 3, commits=False) == meant(abort_retry)
    assert verdict(rule, known, 10, 4, commits=False) == meant(abort)
    assert verdict(rule, known, 10, 3, commits=True) == meant(commit_retry)
    assert verdict(rule, known, 10, 4, commits=True) == meant(commit)
    for commits in (True, False):
        for epoch in (2, 5):
            assert verdict(rule, known, 10, epoch, commits=commits) is ErrorCode.PRODUCER_FENCED
        assert verdict(rule, known, 11, 4, commits=commits) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for pid, epoch in ((10, 4), (10, 9), (11, 4)):
            pending = verdict(rule, known, pid, epoch, commits=commits, pending=True)
            assert pending is ErrorCode.CONCURRENT_TRANSACTIONS, "before anything else is looked at"


@pytest.mark.behaviour("C-132")
@pytest.mark.parametrize("line", WITH_BUMP.strip().splitlines())
def test_end_txn_version_2_retry_with_exhausted_epoch_of_previous_producer_id(line: str) -> None:
    title, abort_retry, _, commit_retry, _ = line.split()
    state = STATES_BY_NAME[title]
    known = txn(state, epoch=0, previous_producer_id=9)
    fenced = ErrorCode.PRODUCER_FENCED
    for commits, word in ((False, abort_retry), (True, commit_retry)):
        outcome = verdict(end_txn_rules.decide_with_epoch_bump, known, 9, LAST, commits=commits)
        assert outcome == (meant(word) if state in {S.COMPLETE_ABORT, S.COMPLETE_COMMIT} else fenced)
        assert (
            verdict(end_txn_rules.decide_with_epoch_bump, known, 9, LAST - 1, commits=commits)
            is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        assert (
            verdict(end_txn_rules.decide_with_epoch_bump, known, 8, LAST, commits=commits)
            is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
