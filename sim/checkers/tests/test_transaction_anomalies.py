"""Guarantees of transactions: each anomaly with a history that shows it, and a legal counterpart."""

from __future__ import annotations

import pytest

from sim.checkers.anomalies import find_anomalies
from sim.checkers.history import (
    HistoryPartition,
    OffsetsStep,
    Operation,
    OperationHistory,
    OperationOutcome,
    PollStep,
    SendStep,
)
from sim.checkers.tests.test_anomalies import FAIL, INFO, OK, AnomalyCase, HistoryBuilder, K, L, found, history, poll
from sim.checkers.transaction_anomalies import MAX_LSO_DELAY_S, check_copy

T3 = SendStep(K, 3), SendStep(L, 4)


class TransactionHistoryBuilder(HistoryBuilder):
    """Transactions step by step, with readers of both isolation levels."""

    def start(self, process: str = "p") -> int:
        return self.history.start(process, "txn")

    def end(self, number: int, outcome: OperationOutcome = OK) -> TransactionHistoryBuilder:
        self.history.end(number, outcome)
        return self

    def read_all(self, *values: int, at: int = 0, place: HistoryPartition = K) -> TransactionHistoryBuilder:
        """Read all records, by a read_uncommitted reader, too."""
        number = self.history.start("all", "poll", uncommitted=True)
        self.history.end(number, OK, 0.0, [poll(*values, at=at, place=place)])
        return self


def read_during(*, requested: bool) -> TransactionHistoryBuilder:
    """Read a transaction while it is open, or once its client has requested the commit."""
    operations = TransactionHistoryBuilder()
    number = operations.start()
    operations.history.add_sends(number, [SendStep(K, 1)])
    if requested:
        operations.history.request_commit(number)
        operations.add_poll(1)
    else:
        operations.add_poll(1)
        operations.history.request_commit(number)
    return operations.end(number)


def reader_without_read(outcome: OperationOutcome, *, by_all: bool) -> TransactionHistoryBuilder:
    operations = TransactionHistoryBuilder()
    number = operations.start()
    operations.history.add_sends(number, [SendStep(K, 1)])
    if by_all:
        operations.read_all(1)
    else:
        operations.add_poll(1)
    return operations.end(number, outcome)


def with_offsets(*looks: tuple[float, int, int]) -> HistoryBuilder:
    """Return time, last stable offset, high watermark."""
    operations = history()
    for now_s, stable, high in looks:
        number = operations.history.start("w", "look", now_s=now_s)
        operations.history.end(number, OK, now_s, [OffsetsStep(K, stable, high)])
    return operations


LATE = MAX_LSO_DELAY_S + 1
CASES = [
    AnomalyCase(
        "G1a", history().add_send(1, outcome=FAIL).add_poll(1), history().add_send(1, outcome=INFO).add_poll(1)
    ),
    AnomalyCase("G1a", reader_without_read(FAIL, by_all=False), reader_without_read(FAIL, by_all=True)),
    AnomalyCase(
        "precommitted-read",
        history().add_operation("p", "txn", SendStep(K, 1), poll(1)),
        history().add_operation("p", "txn", SendStep(K, 1)).add_operation("p", "txn", poll(1)),
    ),
    AnomalyCase("precommitted-read", read_during(requested=False), read_during(requested=True)),
    AnomalyCase("precommitted-read", reader_without_read(INFO, by_all=False), reader_without_read(INFO, by_all=True)),
    AnomalyCase(
        "precommitted-read", reader_without_read(INFO, by_all=False), reader_without_read(FAIL, by_all=False)
    ),  # which is G1a
    AnomalyCase(
        "torn-txn",
        history().add_operation("p", "txn", SendStep(K, 1), SendStep(L, 2), outcome=INFO).add_poll(1),
        history().add_operation("p", "txn", SendStep(K, 1), SendStep(L, 2), outcome=INFO),
    ),
    AnomalyCase(
        "torn-txn",
        history().add_operation("p", "txn", *T3).add_poll(3),
        history().add_operation("p", "txn", *T3).add_poll(3).add_poll(4, place=L),
    ),
    AnomalyCase(  # a committed transaction that a later reader did not see
        "lost-write",
        history()
        .add_operation("p", "txn", SendStep(K, 1, 0))
        .add_operation("p", "txn", SendStep(K, 2, 2))
        .add_poll(2, at=2),
        history()
        .add_operation("p", "txn", SendStep(K, 1, 0), outcome=FAIL)
        .add_operation("p", "txn", SendStep(K, 2, 2))
        .add_poll(2, at=2),
    ),
    AnomalyCase(  # only the read_uncommitted reader saw it
        "unseen",
        TransactionHistoryBuilder().read_all(1).add_operation("p", "txn", SendStep(K, 1, 0)),
        TransactionHistoryBuilder().read_all(1).add_operation("p", "txn", SendStep(K, 1, 0), outcome=FAIL),
    ),
    AnomalyCase("ghost", TransactionHistoryBuilder().read_all(9), reader_without_read(FAIL, by_all=True)),
    AnomalyCase(
        "inconsistent-offsets",
        TransactionHistoryBuilder().read_all(1).add_send(1, outcome=FAIL).add_send(2).add_poll(2),
        TransactionHistoryBuilder().read_all(1).add_send(1, outcome=FAIL).add_send(2).add_poll(2, at=1),
    ),
    AnomalyCase("lso-stuck", with_offsets((0, 5, 9), (LATE, 5, 9)), with_offsets((0, 5, 9), (LATE, 6, 9))),
    AnomalyCase(
        "lso-stuck",
        with_offsets((0, 5, 5), (1, 5, 9), (LATE + 1, 5, 30)),
        with_offsets((0, 5, 9), (5, 5, 5), (LATE, 5, 30)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_find_anomalies_of_transaction_finds_anomaly_and_not_its_counterpart(case: AnomalyCase) -> None:
    assert (case.name, case.is_violation) in [(x.name, x.is_violation) for x in found(case.anomalous)]
    assert case.name not in [x.name for x in found(case.legal)]


def test_transaction_cases_cover_every_rule() -> None:
    names = {case.name for case in CASES}
    assert names >= {"G1a", "precommitted-read", "torn-txn", "lost-write", "unseen", "lso-stuck"}


def test_read_committed_reader_past_aborted_records_has_no_anomaly() -> None:
    operations = (
        TransactionHistoryBuilder()
        .add_operation("p", "txn", SendStep(K, 1, 0))
        .add_operation("p", "txn", SendStep(K, 7), outcome=FAIL)
    )
    operations.add_operation("p", "txn", SendStep(K, 2, 4)).add_operation("r", "assign", places=[K])
    TransactionHistoryBuilder.read_all(operations, 1, 7, at=0)  # type: ignore[arg-type]
    operations.add_poll(1).add_poll(2, at=4)
    assert found(operations) == []


def test_stuck_last_stable_offset_is_reported_once() -> None:
    operations = with_offsets((0, 5, 9), (LATE, 5, 9), (LATE + 1, 5, 10))
    assert [x.name for x in found(operations)] == ["lso-stuck"]


def test_history_with_sends_added_to_open_transaction_contains_them() -> None:
    history = OperationHistory()
    number = history.start("p", "txn")
    history.add_sends(number, [SendStep(K, 1)])
    history.add_sends(number, [SendStep(L, 2)])
    history.request_commit(number)
    history.end(number, OK)
    (op,) = history.operations()
    assert op == Operation("p", "txn", OK, (SendStep(K, 1), SendStep(L, 2)), (), 0, 2, commit_requested_at=1)
    assert find_anomalies([op._replace(steps=())]) == []


# ---------------------------------------------------------------------- copies

SOURCE = {K: [(0, 10), (1, 11), (3, 12)], L: [(0, 20), (1, 21)]}


@pytest.mark.parametrize(
    ("name", "target", "positions"),
    [
        ("", [10, 20, 11, 21, 12], {K: 4, L: 2}),
        ("", [10, 11], {K: 2}),
        ("", [], {}),
        ("copy-twice", [10, 11, 10], {K: 2}),
        ("copy-lost", [10, 12], {K: 4}),
        ("copy-lost", [20], {K: 1, L: 1}),
        ("copy-ghost", [10, 99], {K: 1}),
        ("copy-ghost", [10, 11], {K: 1}),  # more than the committed offset
        ("copy-disorder", [11, 10], {K: 2}),
    ],
)
def test_check_copy_with_missing_duplicate_or_reordered_record_reports_anomaly(
    name: str, target: list[int], positions: dict[HistoryPartition, int]
) -> None:
    assert [x.name for x in check_copy(SOURCE, target, positions)] == ([name] if name else [])


def test_history_records_isolation_level_of_poll() -> None:
    history = OperationHistory()
    number = history.start("r", "poll", uncommitted=True)
    history.end(number, OK, 0.0, [PollStep(K, ())])
    assert history.operations()[0].reads_uncommitted
