"""The history checker: each anomaly with a history that shows it, and a twin that is legal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from sim.anomalies import Anomaly, check, worst_lag_s
from sim.history import History, Op, Outcome, Place, Poll, Send, Step, payload, value_of

K: Place = ("t", 0)
L: Place = ("t", 1)
OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


class Told:
    """A history in the order it is told: each operation ends before the next begins, but for those in ``overlap``."""

    def __init__(self) -> None:
        self.history = History()

    def op(self, process: str, kind: str, *steps: Step, outcome: Outcome = OK, places: Iterable[Place] = ()) -> Told:
        number = self.history.begin(process, kind, steps)
        self.history.end(number, outcome, places=places)
        return self

    def overlap(self, *ops: tuple[str, str, tuple[Step, ...]]) -> Told:
        numbers = [self.history.begin(process, kind, steps) for process, kind, steps in ops]
        for number in numbers:
            self.history.end(number, OK)
        return self

    def sent(self, *values: int, process: str = "p", place: Place = K, first: int = -1, outcome: Outcome = OK) -> Told:
        steps = [Send(place, v, first + i if first >= 0 else -1) for i, v in enumerate(values)]
        return self.op(process, "send", *steps, outcome=outcome)

    def read(self, *values: int | None, at: int = 0, process: str = "r", place: Place = K) -> Told:
        return self.op(process, "poll", poll(*values, at=at, place=place))


def poll(*values: int | None, at: int = 0, place: Place = K) -> Poll:
    return Poll(place, tuple((at + i, v) for i, v in enumerate(values)))


def t() -> Told:
    return Told()


class Case(NamedTuple):
    """What must be found in one history and not in the other."""

    name: str
    shows: Told
    legal: Told
    bad: bool = True
    """Whether Kafka must never show it."""


def assigned(kind: str, *places: Place) -> Told:
    return t().sent(1, 2, 3).op("r", kind, places=places).read(1)


ONE_EACH = (("a", "txn", (Send(K, 1), poll(2, place=L))), ("b", "txn", (Send(L, 2), poll(1))))

CASES = [
    Case("inconsistent-offsets", t().sent(1).sent(2).read(1).read(2), t().sent(1).sent(2).read(1).read(2, at=1)),
    Case("inconsistent-offsets", t().sent(1, first=0).sent(2).read(2), t().sent(1, first=0).sent(2).read(1, 2)),
    Case(
        "inconsistent-offsets", t().sent(1).read(1).sent(2).op("r", "poll", poll(2), outcome=FAIL), t().sent(1).read(1)
    ),
    Case("duplicate", t().sent(1).read(1, 1), t().sent(1).read(1).read(1)),
    Case("lost-write", t().sent(1, first=0).sent(2).read(2, at=1), t().sent(1, first=1).sent(2).read(2)),
    Case(
        "lost-write",
        t().sent(1, first=0).sent(2).read(2, at=1),
        t().sent(1, first=0, outcome=INFO).sent(2).read(2, at=1),
    ),
    Case("unseen", t().sent(1, first=0), t().sent(1, outcome=INFO)),
    Case("unseen", t().sent(1).sent(2).read(1), t().sent(1).sent(2, outcome=FAIL).read(1)),
    Case("ghost", t().read(7), t().sent(7, outcome=INFO).read(7)),
    Case("ghost", t().sent(7, place=L).read(7).read(7, place=L), t().sent(7, place=L).read(7, place=L)),
    Case("crc", t().sent(1).read(None), t().sent(1).read(1)),
    Case("poll-skip", assigned("assign", K).read(3, at=2).read(2, at=1), assigned("assign", K).read(2, 3, at=1)),
    Case(
        "poll-skip",
        assigned("subscribe", K).read(3, at=2).read(2, at=1),
        assigned("subscribe", K).read(2, 3, at=1),
        False,
    ),
    Case(
        "poll-skip",  # what is still its own after a new deal goes on where it was
        assigned("assign", K).op("r", "assign", places=[K, L]).read(3, at=2).read(2, at=1),
        assigned("assign", K)
        .op("r", "assign", places=[L])
        .op("r", "assign", places=[K])
        .read(3, at=2)
        .read(2, at=1, process="s"),
    ),
    Case(
        "poll-skip",
        assigned("assign", K).read(3, at=2).read(2, at=1, process="s"),
        assigned("assign", K).op("r", "crash").read(3, at=2).read(2, at=1, process="s"),
    ),
    Case(
        "nonmonotonic-poll", assigned("assign", K).read(1), assigned("assign", K).read(1, process="s").read(2, 3, at=1)
    ),
    Case(
        "nonmonotonic-poll", assigned("subscribe", K).read(1), assigned("subscribe", K).op("r", "crash").read(1), False
    ),
    Case(
        "int-poll-skip",
        t().sent(1, 2, 3).read(2, at=1).op("s", "poll", Poll(K, ((0, 1), (2, 3)))),
        t().sent(1, 2, 3).op("s", "poll", Poll(K, ((0, 1), (2, 3)))),
        True,
    ),
    Case(
        "int-nonmonotonic-poll",
        t().sent(1, 2).op("r", "poll", Poll(K, ((1, 2), (0, 1)))),
        t().sent(1, 2).op("r", "poll", Poll(K, ((0, 1), (1, 2)))),
    ),
    Case(
        "int-nonmonotonic-poll",
        t().sent(1, 2).op("r", "poll", Poll(K, ((1, 2), (0, 1)))),
        t().sent(1, 2).op("r", "poll", Poll(K, ((1, 2), (0, 1))), places=[K]),  # dealt anew in between
    ),
    Case("nonmonotonic-send", t().sent(1).sent(2).read(2, 1), t().sent(1).sent(2, process="q").read(2, 1)),
    Case(
        "nonmonotonic-send",
        t().sent(1, outcome=INFO).sent(2).read(2, 1),
        t().sent(1).op("p", "crash").sent(2).read(2, 1),
    ),
    Case("int-nonmonotonic-send", t().sent(1, 2).read(2, 1), t().sent(1, 2).read(1, 2)),
    Case(
        "int-send-skip",
        t().sent(1, 2).sent(3, process="q").read(1, 3, 2),
        t().sent(1, 2).sent(3, process="q").read(1, 2, 3),
        False,
    ),
    Case("G1c", t().overlap(*ONE_EACH), t().overlap(ONE_EACH[0], ("b", "txn", (Send(L, 2),)))),
    Case(
        "G1c-process",  # a read what c wrote after b had read what a wrote later
        t().overlap(("a", "txn", (poll(2, place=L),)), ("b", "txn", (Send(L, 2), poll(1)))).op("a", "txn", Send(K, 1)),
        t()
        .overlap(("a", "txn", (poll(2, place=L),)), ("b", "txn", (Send(L, 2), poll(1))))
        .op("c", "txn", Send(K, 1))
        .op("b", "txn"),
    ),
    Case(
        "G1c-realtime",
        t().op("a", "txn", poll(1)).op("b", "txn", Send(K, 1)),
        t().overlap(("a", "txn", (poll(1),)), ("b", "txn", (Send(K, 1),))),
    ),
    Case(
        "G0",
        t()
        .overlap(("a", "txn", (Send(K, 1), Send(L, 4))), ("b", "txn", (Send(K, 2), Send(L, 3))))
        .read(1, 2)
        .read(3, 4, place=L),
        t()
        .overlap(("a", "txn", (Send(K, 1), Send(L, 4))), ("b", "txn", (Send(K, 2), Send(L, 3))))
        .read(1, 2)
        .read(4, 3, place=L),
        False,
    ),
]


def found(told: Told) -> list[Anomaly]:
    return check(told.history.ops())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_anomaly_is_found_and_its_legal_twin_is_not(case: Case) -> None:
    assert (case.name, case.bad) in [(x.name, x.bad) for x in found(case.shows)]
    assert case.name not in [x.name for x in found(case.legal)]


def test_every_rule_has_its_rows() -> None:
    names = {case.name for case in CASES}
    assert names >= {"inconsistent-offsets", "duplicate", "lost-write", "unseen", "ghost", "crc"}
    assert names >= {"poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"}
    assert names >= {"nonmonotonic-send", "int-nonmonotonic-send", "int-send-skip", "G0", "G1c"}


def test_a_history_of_two_clients_that_all_went_well_has_no_anomaly() -> None:
    told = t().op("r", "assign", places=[K, L])
    for n in range(20):
        told.sent(2 * n, first=2 * n).sent(2 * n + 1, process="q", first=2 * n + 1)
        told.read(2 * n, 2 * n + 1, at=2 * n)
    assert found(told) == []


def test_markers_leave_holes_that_nobody_skipped() -> None:
    told = t().sent(1, first=0).sent(2, first=2).op("r", "assign", places=[K]).read(1).read(2, at=2)
    assert found(told) == []


def test_without_idempotence_a_duplicate_is_told_and_not_bad() -> None:
    ops = t().sent(1).read(1, 1).history.ops()
    assert [(x.name, x.bad) for x in check(ops, idempotent=False)] == [("duplicate", False)]


def test_nothing_counts_as_unseen_or_torn_before_everything_was_read() -> None:
    ops = t().sent(1, first=0).op("p", "txn", Send(K, 2), Send(L, 3)).read(1, 2).history.ops()
    assert [x.name for x in check(ops)] == ["unseen", "torn-txn"]
    assert check(ops, final=False) == []


def test_what_has_not_ended_may_have_happened() -> None:
    history = History()
    history.begin("p", "send", [Send(K, 1)])
    number = history.begin("r", "poll")
    history.end(number, OK, 1.0, [poll(1)])
    assert [(x.process, x.outcome) for x in history.ops()] == [("r", OK), ("p", INFO)]
    assert check(history.ops()) == []


def test_a_payload_is_whole_only_at_its_own_place() -> None:
    raw = payload(K, 7)
    assert value_of(K, raw) == 7
    assert value_of(L, raw) is None
    assert value_of(K, raw[:-1] + b"\x00") is None
    assert value_of(K, raw[:8]) is None
    assert value_of(K, None) is None


def test_the_lag_of_a_read_is_the_age_of_what_it_did_not_reach() -> None:
    ops = [
        Op("p", "send", OK, (Send(K, 1, 0), Send(K, 2, 1)), began=0, ended=1, began_s=0.0, ended_s=1.0),
        Op("r", "poll", OK, (poll(1),), began=2, ended=3, began_s=5.0, ended_s=5.1),
        Op("r", "poll", OK, (poll(2, at=1),), began=4, ended=5, began_s=9.0, ended_s=9.1),
    ]
    assert worst_lag_s(ops) == 4.0
    assert worst_lag_s(ops[:1] + ops[2:]) == 0.0
