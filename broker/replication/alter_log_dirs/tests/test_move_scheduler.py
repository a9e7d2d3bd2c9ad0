"""Scheduling of moves between log directories: next move, and cost of finding it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replication.alter_log_dirs.move_scheduler import MAX_DUE_PER_CALL, LogDirMove, MoveScheduler
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta

MOST = 2
NOW_MS = 1000.0


def move(name: str, number: int = 0) -> LogDirMove:
    replica: Any = SimpleNamespace(topic=name, partition=number, log=None)
    return LogDirMove(replica, None)  # type: ignore[arg-type]


class MoveQueue:
    """Moves by the letters of their names, with the scheduler."""

    def __init__(self, names: str) -> None:
        self.turns = MoveScheduler()
        self.moves = {name: move(name) for name in names}
        for name in names:
            self.turns.add(self.moves[name])

    def next(self, now_ms: float = NOW_MS) -> str:
        """Return the next ready move, not rescheduled yet; empty where there is none."""
        found = self.turns.next_ready(now_ms, MOST)
        return "" if found is None else found.replica.topic

    def after(self, name: str, **now: Any) -> None:
        """Reschedule a move with these fields."""
        for key, value in now.items():
            setattr(self.moves[name], key, value)
        self.turns.reschedule(self.moves[name])

    def turn(self, now_ms: float = NOW_MS, **now: Any) -> str:
        """Take and reschedule the next move."""
        name = self.next(now_ms)
        if name:
            self.after(name, **now)
        return name

    def turns_of(self, count: int, now_ms: float = NOW_MS, **now: Any) -> str:
        return "".join(self.turn(now_ms, **now) for _ in range(count))


def test_new_moves_start_in_name_order_and_alternate() -> None:
    assert MoveQueue("dbca").turns_of(7) == "abababa"


@pytest.mark.parametrize(("why", "gone"), [("asked", {"assignment_sent_ms": 5.0}), ("held up", {"is_blocked": True})])
def test_blocked_or_unassigned_move_frees_its_slot(why: str, gone: dict[str, Any]) -> None:
    queue = MoveQueue("abcd")
    assert queue.turns_of(2) == "ab"
    assert queue.turn(**gone, not_before_ms=NOW_MS + 10) == "a", why
    assert queue.turns_of(4) == "cbcb"
    assert queue.turns_of(3, NOW_MS + 10) == "acb"


def test_unblocked_move_takes_its_slot_again() -> None:
    queue = MoveQueue("abc")
    assert queue.turns_of(2) == "ab"
    queue.turn(is_blocked=True)
    assert queue.turns_of(1) == "c"
    assert [queue.turn(is_blocked=False) for _ in range(3)] == ["b", "a", "c"]
    queue.turns.add(move("d"))
    assert "d" not in queue.turns_of(6)


def test_postponed_move_is_not_ready_before_its_time() -> None:
    queue = MoveQueue("ab")
    assert queue.turns.next_due_ms() == float("inf")
    queue.turn(not_before_ms=NOW_MS + 100)
    queue.turn(not_before_ms=NOW_MS + 50)
    assert queue.turns.next_due_ms() == NOW_MS + 50
    assert queue.next(NOW_MS + 49) == ""
    assert queue.turns_of(2, NOW_MS + 50, not_before_ms=NOW_MS + 200) == "b"
    assert queue.turns_of(2, NOW_MS + 200) == "ab"


def changed(*places: tuple[str, int]) -> MetadataDelta:
    names = {name for name, _ in places}
    return MetadataDelta(
        {n: TopicDelta(None, None, frozenset(number for x, number in places if x == n)) for n in names}
    )


def test_assignment_change_returns_only_moves_awaiting_it() -> None:
    queue = MoveQueue("abc")
    queue.turn(assignment_sent_ms=1.0, not_before_ms=NOW_MS + 900)
    queue.turn()
    everything = changed(("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0))
    assert list(queue.turns.moves_awaiting_assignment(everything)) == [queue.moves["a"]]
    assert list(queue.turns.moves_awaiting_assignment(changed(("b", 0), ("a", 1)))) == []


def test_woken_move_is_ready_once() -> None:
    queue = MoveQueue("a")
    queue.turn(assignment_sent_ms=1.0, not_before_ms=NOW_MS + 900)
    for _ in range(2):
        queue.turns.wake(queue.moves["a"])
    assert queue.next() == "a"
    assert queue.next(NOW_MS + 900) == "", "it has its turn"
    queue.after("a", not_before_ms=NOW_MS + 1500)
    assert queue.next(NOW_MS + 1400) == ""
    assert queue.turn(NOW_MS + 1500) == "a"


def test_move_woken_during_its_step_waits_for_its_new_time() -> None:
    queue = MoveQueue("a")
    assert queue.next() == "a"
    queue.turns.wake(queue.moves["a"])
    queue.after("a", not_before_ms=NOW_MS + 5)
    assert queue.next() == ""
    assert queue.next(NOW_MS + 5) == "a"


def test_removed_move_takes_no_slot() -> None:
    queue = MoveQueue("abc")
    queue.turns_of(2)
    assert queue.next() == "a"
    queue.turns.remove(queue.moves["a"])
    queue.turns.reschedule(queue.moves["a"])
    assert len(queue.turns) == 2
    assert queue.turns_of(4) == "cbcb"


def test_move_replaced_by_new_one_starts_as_new() -> None:
    queue = MoveQueue("abc")
    queue.turn(assignment_sent_ms=1.0, not_before_ms=NOW_MS + 1)
    queue.turns_of(2)
    queue.moves["a"] = move("a")
    queue.turns.add(queue.moves["a"])
    assert len(queue.turns) == 3
    assert list(queue.turns.moves_awaiting_assignment(changed(("a", 0)))) == []
    assert "a" not in queue.turns_of(6, NOW_MS + 10), "two are being copied"
    queue.turn(is_blocked=True, not_before_ms=NOW_MS + 99)
    assert queue.turn() == "a"


def test_move_cancelled_and_added_again_is_queued_once() -> None:
    queue = MoveQueue("abc")
    queue.turns_of(2)
    for _ in range(50):
        queue.moves["c"] = move("c")
        queue.turns.add(queue.moves["c"])
    assert len(queue.turns._new) == 1, "while others are copied for hours"
    assert queue.turns_of(3, is_blocked=True, not_before_ms=NOW_MS + 99) == "acb"
    assert queue.next() == ""


class ComparisonCountingTopic(str):
    """Name that counts its comparisons."""

    __slots__ = ()
    count = 0

    def __lt__(self, other: str) -> bool:
        ComparisonCountingTopic.count += 1
        return str.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        ComparisonCountingTopic.count += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_next_ready_among_many_moves_compares_few_names() -> None:
    turns = MoveScheduler()
    for number in range(20_000):
        turns.add(move(ComparisonCountingTopic(f"t{number:05}")))
    for _ in range(10_000):  # each waits for the controller
        found = turns.next_ready(NOW_MS, MOST)
        assert found is not None
        found.assignment_sent_ms, found.not_before_ms = NOW_MS, NOW_MS + 1000
        turns.reschedule(found)
    for now_ms in (NOW_MS, NOW_MS + 1000):  # half of them are due by then, all at once
        ComparisonCountingTopic.count = 0
        found = turns.next_ready(now_ms, MOST if now_ms == NOW_MS else 0)
        assert found is not None
        assert ComparisonCountingTopic.count < 40 * (1 if now_ms == NOW_MS else MAX_DUE_PER_CALL)
        turns.reschedule(found)
