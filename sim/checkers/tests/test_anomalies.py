"""History checker: each anomaly with a history that shows it, and a legal counterpart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from sim.checkers.anomalies import Anomaly, find_anomalies, max_read_lag_s
from sim.checkers.history import (
    HistoryPartition,
    Operation,
    OperationHistory,
    OperationOutcome,
    OperationStep,
    PollStep,
    SendStep,
    decode_value,
    encode_value,
)

K: HistoryPartition = ("t", 0)
L: HistoryPartition = ("t", 1)
OK, FAIL, INFO = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO


class HistoryBuilder:
    """History in the order of its calls: each operation ends before the next begins, except those in ``overlap``."""

    def __init__(self) -> None:
        self.history = OperationHistory()

    def add_operation(
        self,
        process: str,
        kind: str,
        *steps: OperationStep,
        outcome: OperationOutcome = OK,
        places: Iterable[HistoryPartition] = (),
    ) -> HistoryBuilder:
        number = self.history.start(process, kind, steps)
        self.history.end(number, outcome, places=places)
        return self

    def overlap(self, *ops: tuple[str, str, tuple[OperationStep, ...]]) -> HistoryBuilder:
        numbers = [self.history.start(process, kind, steps) for process, kind, steps in ops]
        for number in numbers:
            self.history.end(number, OK)
        return self

    def add_send(
        self,
        *values: int,
        process: str = "p",
        place: HistoryPartition = K,
        first: int = -1,
        outcome: OperationOutcome = OK,
    ) -> HistoryBuilder:
        steps = [SendStep(place, v, first + i if first >= 0 else -1) for i, v in enumerate(values)]
        return self.add_operation(process, "send", *steps, outcome=outcome)

    def add_poll(
        self, *values: int | None, at: int = 0, process: str = "r", place: HistoryPartition = K
    ) -> HistoryBuilder:
        return self.add_operation(process, "poll", poll(*values, at=at, place=place))


def poll(*values: int | None, at: int = 0, place: HistoryPartition = K) -> PollStep:
    return PollStep(place, tuple((at + i, v) for i, v in enumerate(values)))


def history() -> HistoryBuilder:
    return HistoryBuilder()


class AnomalyCase(NamedTuple):
    """Anomaly that one history has and the other has not."""

    name: str
    anomalous: HistoryBuilder
    legal: HistoryBuilder
    is_violation: bool = True
    """True if Kafka must never show it."""


def assigned(kind: str, *places: HistoryPartition) -> HistoryBuilder:
    return history().add_send(1, 2, 3).add_operation("r", kind, places=places).add_poll(1)


ONE_EACH = (("a", "txn", (SendStep(K, 1), poll(2, place=L))), ("b", "txn", (SendStep(L, 2), poll(1))))

CASES = [
    AnomalyCase(
        "inconsistent-offsets",
        history().add_send(1).add_send(2).add_poll(1).add_poll(2),
        history().add_send(1).add_send(2).add_poll(1).add_poll(2, at=1),
    ),
    AnomalyCase(
        "inconsistent-offsets",
        history().add_send(1, first=0).add_send(2).add_poll(2),
        history().add_send(1, first=0).add_send(2).add_poll(1, 2),
    ),
    AnomalyCase(
        "inconsistent-offsets",
        history().add_send(1).add_poll(1).add_send(2).add_operation("r", "poll", poll(2), outcome=FAIL),
        history().add_send(1).add_poll(1),
    ),
    AnomalyCase("duplicate", history().add_send(1).add_poll(1, 1), history().add_send(1).add_poll(1).add_poll(1)),
    AnomalyCase(
        "lost-write",
        history().add_send(1, first=0).add_send(2).add_poll(2, at=1),
        history().add_send(1, first=1).add_send(2).add_poll(2),
    ),
    AnomalyCase(
        "lost-write",
        history().add_send(1, first=0).add_send(2).add_poll(2, at=1),
        history().add_send(1, first=0, outcome=INFO).add_send(2).add_poll(2, at=1),
    ),
    AnomalyCase("unseen", history().add_send(1, first=0), history().add_send(1, outcome=INFO)),
    AnomalyCase(
        "unseen",
        history().add_send(1).add_send(2).add_poll(1),
        history().add_send(1).add_send(2, outcome=FAIL).add_poll(1),
    ),
    AnomalyCase("ghost", history().add_poll(7), history().add_send(7, outcome=INFO).add_poll(7)),
    AnomalyCase(
        "ghost",
        history().add_send(7, place=L).add_poll(7).add_poll(7, place=L),
        history().add_send(7, place=L).add_poll(7, place=L),
    ),
    AnomalyCase("crc", history().add_send(1).add_poll(None), history().add_send(1).add_poll(1)),
    AnomalyCase(
        "poll-skip",
        assigned("assign", K).add_poll(3, at=2).add_poll(2, at=1),
        assigned("assign", K).add_poll(2, 3, at=1),
    ),
    AnomalyCase(
        "poll-skip",
        assigned("subscribe", K).add_poll(3, at=2).add_poll(2, at=1),
        assigned("subscribe", K).add_poll(2, 3, at=1),
        False,
    ),
    AnomalyCase(
        "poll-skip",  # a partition that is kept in a new assignment continues at its position
        assigned("assign", K).add_operation("r", "assign", places=[K, L]).add_poll(3, at=2).add_poll(2, at=1),
        assigned("assign", K)
        .add_operation("r", "assign", places=[L])
        .add_operation("r", "assign", places=[K])
        .add_poll(3, at=2)
        .add_poll(2, at=1, process="s"),
    ),
    AnomalyCase(
        "poll-skip",
        assigned("assign", K).add_poll(3, at=2).add_poll(2, at=1, process="s"),
        assigned("assign", K).add_operation("r", "crash").add_poll(3, at=2).add_poll(2, at=1, process="s"),
    ),
    AnomalyCase(
        "nonmonotonic-poll",
        assigned("assign", K).add_poll(1),
        assigned("assign", K).add_poll(1, process="s").add_poll(2, 3, at=1),
    ),
    AnomalyCase(
        "nonmonotonic-poll",
        assigned("subscribe", K).add_poll(1),
        assigned("subscribe", K).add_operation("r", "crash").add_poll(1),
        False,
    ),
    AnomalyCase(
        "int-poll-skip",
        history().add_send(1, 2, 3).add_poll(2, at=1).add_operation("s", "poll", PollStep(K, ((0, 1), (2, 3)))),
        history().add_send(1, 2, 3).add_operation("s", "poll", PollStep(K, ((0, 1), (2, 3)))),
        True,
    ),
    AnomalyCase(
        "int-nonmonotonic-poll",
        history().add_send(1, 2).add_operation("r", "poll", PollStep(K, ((1, 2), (0, 1)))),
        history().add_send(1, 2).add_operation("r", "poll", PollStep(K, ((0, 1), (1, 2)))),
    ),
    AnomalyCase(
        "int-nonmonotonic-poll",
        history().add_send(1, 2).add_operation("r", "poll", PollStep(K, ((1, 2), (0, 1)))),
        history()
        .add_send(1, 2)
        .add_operation("r", "poll", PollStep(K, ((1, 2), (0, 1))), places=[K]),  # assigned again in between
    ),
    AnomalyCase(
        "nonmonotonic-send",
        history().add_send(1).add_send(2).add_poll(2, 1),
        history().add_send(1).add_send(2, process="q").add_poll(2, 1),
    ),
    AnomalyCase(
        "nonmonotonic-send",
        history().add_send(1, outcome=INFO).add_send(2).add_poll(2, 1),
        history().add_send(1).add_operation("p", "crash").add_send(2).add_poll(2, 1),
    ),
    AnomalyCase(
        "int-nonmonotonic-send", history().add_send(1, 2).add_poll(2, 1), history().add_send(1, 2).add_poll(1, 2)
    ),
    AnomalyCase(
        "int-send-skip",
        history().add_send(1, 2).add_send(3, process="q").add_poll(1, 3, 2),
        history().add_send(1, 2).add_send(3, process="q").add_poll(1, 2, 3),
        False,
    ),
    AnomalyCase("G1c", history().overlap(*ONE_EACH), history().overlap(ONE_EACH[0], ("b", "txn", (SendStep(L, 2),)))),
    AnomalyCase(
        "G1c-process",  # a read the value of c after b had read the later value of a
        history()
        .overlap(("a", "txn", (poll(2, place=L),)), ("b", "txn", (SendStep(L, 2), poll(1))))
        .add_operation("a", "txn", SendStep(K, 1)),
        history()
        .overlap(("a", "txn", (poll(2, place=L),)), ("b", "txn", (SendStep(L, 2), poll(1))))
        .add_operation("c", "txn", SendStep(K, 1))
        .add_operation("b", "txn"),
    ),
    AnomalyCase(
        "G1c-realtime",
        history().add_operation("a", "txn", poll(1)).add_operation("b", "txn", SendStep(K, 1)),
        history().overlap(("a", "txn", (poll(1),)), ("b", "txn", (SendStep(K, 1),))),
    ),
    AnomalyCase(
        "G0",
        history()
        .overlap(("a", "txn", (SendStep(K, 1), SendStep(L, 4))), ("b", "txn", (SendStep(K, 2), SendStep(L, 3))))
        .add_poll(1, 2)
        .add_poll(3, 4, place=L),
        history()
        .overlap(("a", "txn", (SendStep(K, 1), SendStep(L, 4))), ("b", "txn", (SendStep(K, 2), SendStep(L, 3))))
        .add_poll(1, 2)
        .add_poll(4, 3, place=L),
        False,
    ),
]


def found(builder: HistoryBuilder) -> list[Anomaly]:
    return find_anomalies(builder.history.operations())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_find_anomalies_finds_anomaly_and_not_its_legal_counterpart(case: AnomalyCase) -> None:
    assert (case.name, case.is_violation) in [(x.name, x.is_violation) for x in found(case.anomalous)]
    assert case.name not in [x.name for x in found(case.legal)]


def test_anomaly_cases_cover_every_rule() -> None:
    names = {case.name for case in CASES}
    assert names >= {"inconsistent-offsets", "duplicate", "lost-write", "unseen", "ghost", "crc"}
    assert names >= {"poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"}
    assert names >= {"nonmonotonic-send", "int-nonmonotonic-send", "int-send-skip", "G0", "G1c"}


def test_find_anomalies_of_two_successful_clients_returns_none() -> None:
    operations = history().add_operation("r", "assign", places=[K, L])
    for n in range(20):
        operations.add_send(2 * n, first=2 * n).add_send(2 * n + 1, process="q", first=2 * n + 1)
        operations.add_poll(2 * n, 2 * n + 1, at=2 * n)
    assert found(operations) == []


def test_find_anomalies_with_offset_gaps_of_markers_returns_none() -> None:
    operations = (
        history()
        .add_send(1, first=0)
        .add_send(2, first=2)
        .add_operation("r", "assign", places=[K])
        .add_poll(1)
        .add_poll(2, at=2)
    )
    assert found(operations) == []


def test_find_anomalies_without_idempotence_reports_duplicate_as_allowed() -> None:
    ops = history().add_send(1).add_poll(1, 1).history.operations()
    assert [(x.name, x.is_violation) for x in find_anomalies(ops, idempotent=False)] == [("duplicate", False)]


def test_find_anomalies_before_final_read_reports_no_unseen_or_torn_write() -> None:
    ops = (
        history()
        .add_send(1, first=0)
        .add_operation("p", "txn", SendStep(K, 2), SendStep(L, 3))
        .add_poll(1, 2)
        .history.operations()
    )
    assert [x.name for x in find_anomalies(ops)] == ["unseen", "torn-txn"]
    assert find_anomalies(ops, final=False) == []


def test_find_anomalies_with_unfinished_send_accepts_its_record() -> None:
    history = OperationHistory()
    history.start("p", "send", [SendStep(K, 1)])
    number = history.start("r", "poll")
    history.end(number, OK, 1.0, [poll(1)])
    assert [(x.process, x.outcome) for x in history.operations()] == [("r", OK), ("p", INFO)]
    assert find_anomalies(history.operations()) == []


def test_decode_value_for_other_partition_or_damaged_value_returns_none() -> None:
    raw = encode_value(K, 7)
    assert decode_value(K, raw) == 7
    assert decode_value(L, raw) is None
    assert decode_value(K, raw[:-1] + b"\x00") is None
    assert decode_value(K, raw[:8]) is None
    assert decode_value(K, None) is None


def test_max_read_lag_is_age_of_oldest_acknowledged_record_not_read() -> None:
    ops = [
        Operation("p", "send", OK, (SendStep(K, 1, 0), SendStep(K, 2, 1)), began=0, ended=1, began_s=0.0, ended_s=1.0),
        Operation("r", "poll", OK, (poll(1),), began=2, ended=3, began_s=5.0, ended_s=5.1),
        Operation("r", "poll", OK, (poll(2, at=1),), began=4, ended=5, began_s=9.0, ended_s=9.1),
    ]
    assert max_read_lag_s(ops) == 4.0
    assert max_read_lag_s(ops[:1] + ops[2:]) == 0.0
