"""What transactions promise: each anomaly with a history that shows it, and a twin that is legal."""

from __future__ import annotations

import pytest

from sim.anomalies import check
from sim.atomicity import MOST_HELD_UP_S, check_copy
from sim.history import History, Look, Op, Outcome, Place, Poll, Send
from sim.tests.test_history import FAIL, INFO, OK, Case, K, L, Told, found, poll, t

T3 = Send(K, 3), Send(L, 4)


class InTransactions(Told):
    """Transactions step by step, and readers of both kinds."""

    def begun(self, process: str = "p") -> int:
        return self.history.begin(process, "txn")

    def ended(self, number: int, outcome: Outcome = OK) -> InTransactions:
        self.history.end(number, outcome)
        return self

    def read_all(self, *values: int, at: int = 0, place: Place = K) -> InTransactions:
        """By somebody who reads what is not committed, too."""
        number = self.history.begin("all", "poll", uncommitted=True)
        self.history.end(number, OK, 0.0, [poll(*values, at=at, place=place)])
        return self


def read_during(*, asked: bool) -> InTransactions:
    """One transaction, read while it lasts, or once its client has asked for its commit."""
    told = InTransactions()
    number = told.begun()
    told.history.sends(number, [Send(K, 1)])
    if asked:
        told.history.asks(number)
        told.read(1)
    else:
        told.read(1)
        told.history.asks(number)
    return told.ended(number)


def never_asked(outcome: Outcome, *, by_all: bool) -> InTransactions:
    told = InTransactions()
    number = told.begun()
    told.history.sends(number, [Send(K, 1)])
    if by_all:
        told.read_all(1)
    else:
        told.read(1)
    return told.ended(number, outcome)


def looked(*looks: tuple[float, int, int]) -> Told:
    """Time, last stable offset, high watermark."""
    told = t()
    for now_s, stable, high in looks:
        number = told.history.begin("w", "look", now_s=now_s)
        told.history.end(number, OK, now_s, [Look(K, stable, high)])
    return told


LATE = MOST_HELD_UP_S + 1
CASES = [
    Case("G1a", t().sent(1, outcome=FAIL).read(1), t().sent(1, outcome=INFO).read(1)),
    Case("G1a", never_asked(FAIL, by_all=False), never_asked(FAIL, by_all=True)),
    Case(
        "precommitted-read",
        t().op("p", "txn", Send(K, 1), poll(1)),
        t().op("p", "txn", Send(K, 1)).op("p", "txn", poll(1)),
    ),
    Case("precommitted-read", read_during(asked=False), read_during(asked=True)),
    Case("precommitted-read", never_asked(INFO, by_all=False), never_asked(INFO, by_all=True)),
    Case("precommitted-read", never_asked(INFO, by_all=False), never_asked(FAIL, by_all=False)),  # which is G1a
    Case(
        "torn-txn",
        t().op("p", "txn", Send(K, 1), Send(L, 2), outcome=INFO).read(1),
        t().op("p", "txn", Send(K, 1), Send(L, 2), outcome=INFO),
    ),
    Case(
        "torn-txn",
        t().op("p", "txn", *T3).read(3),
        t().op("p", "txn", *T3).read(3).read(4, place=L),
    ),
    Case(  # a committed transaction of which a reader behind it saw nothing
        "lost-write",
        t().op("p", "txn", Send(K, 1, 0)).op("p", "txn", Send(K, 2, 2)).read(2, at=2),
        t().op("p", "txn", Send(K, 1, 0), outcome=FAIL).op("p", "txn", Send(K, 2, 2)).read(2, at=2),
    ),
    Case(  # who reads all saw it, and nobody who reads what is committed
        "unseen",
        InTransactions().read_all(1).op("p", "txn", Send(K, 1, 0)),
        InTransactions().read_all(1).op("p", "txn", Send(K, 1, 0), outcome=FAIL),
    ),
    Case("ghost", InTransactions().read_all(9), never_asked(FAIL, by_all=True)),
    Case(
        "inconsistent-offsets",
        InTransactions().read_all(1).sent(1, outcome=FAIL).sent(2).read(2),
        InTransactions().read_all(1).sent(1, outcome=FAIL).sent(2).read(2, at=1),
    ),
    Case("lso-stuck", looked((0, 5, 9), (LATE, 5, 9)), looked((0, 5, 9), (LATE, 6, 9))),
    Case("lso-stuck", looked((0, 5, 5), (1, 5, 9), (LATE + 1, 5, 30)), looked((0, 5, 9), (5, 5, 5), (LATE, 5, 30))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_anomaly_of_a_transaction_is_found_and_its_legal_twin_is_not(case: Case) -> None:
    assert (case.name, case.bad) in [(x.name, x.bad) for x in found(case.shows)]
    assert case.name not in [x.name for x in found(case.legal)]


def test_every_rule_of_transactions_has_its_rows() -> None:
    names = {case.name for case in CASES}
    assert names >= {"G1a", "precommitted-read", "torn-txn", "lost-write", "unseen", "lso-stuck"}


def test_who_reads_what_is_committed_skips_nothing_where_others_saw_what_was_aborted() -> None:
    told = InTransactions().op("p", "txn", Send(K, 1, 0)).op("p", "txn", Send(K, 7), outcome=FAIL)
    told.op("p", "txn", Send(K, 2, 4)).op("r", "assign", places=[K])
    InTransactions.read_all(told, 1, 7, at=0)  # type: ignore[arg-type]
    told.read(1).read(2, at=4)
    assert found(told) == []


def test_a_partition_that_is_held_up_is_told_once() -> None:
    told = looked((0, 5, 9), (LATE, 5, 9), (LATE + 1, 5, 10))
    assert [x.name for x in found(told)] == ["lso-stuck"]


def test_what_a_transaction_sends_is_known_from_the_moment_it_sends_it() -> None:
    history = History()
    number = history.begin("p", "txn")
    history.sends(number, [Send(K, 1)])
    history.sends(number, [Send(L, 2)])
    history.asks(number)
    history.end(number, OK)
    (op,) = history.ops()
    assert op == Op("p", "txn", OK, (Send(K, 1), Send(L, 2)), (), 0, 2, asked=1)
    assert check([op._replace(steps=())]) == []


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
        ("copy-ghost", [10, 11], {K: 1}),  # more than the position says
        ("copy-disorder", [11, 10], {K: 2}),
    ],
)
def test_a_copy_has_each_record_once_and_in_order(name: str, target: list[int], positions: dict[Place, int]) -> None:
    assert [x.name for x in check_copy(SOURCE, target, positions)] == ([name] if name else [])


def test_polls_of_both_kinds_are_told_apart() -> None:
    history = History()
    number = history.begin("r", "poll", uncommitted=True)
    history.end(number, OK, 0.0, [Poll(K, ())])
    assert history.ops()[0].uncommitted
