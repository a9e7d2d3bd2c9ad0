"""Turns of moves between directories: who is next, and how little is looked at to know it."""

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
    """Moves by the letters of their names, and whose turn it is."""

    def __init__(self, names: str) -> None:
        self.turns = MoveScheduler()
        self.moves = {name: move(name) for name in names}
        for name in names:
            self.turns.add(self.moves[name])

    def next(self, now_ms: float = NOW_MS) -> str:
        """Who is taken, and not put back yet; nothing where nobody is."""
        found = self.turns.next_ready(now_ms, MOST)
        return "" if found is None else found.replica.topic

    def after(self, name: str, **now: Any) -> None:
        """What its turn has made of it."""
        for key, value in now.items():
            setattr(self.moves[name], key, value)
        self.turns.reschedule(self.moves[name])

    def turn(self, now_ms: float = NOW_MS, **now: Any) -> str:
        """A whole turn of the next one."""
        name = self.next(now_ms)
        if name:
            self.after(name, **now)
        return name

    def turns_of(self, count: int, now_ms: float = NOW_MS, **now: Any) -> str:
        return "".join(self.turn(now_ms, **now) for _ in range(count))


def test_new_ones_begin_by_their_names_as_many_as_may_be_and_take_turns() -> None:
    assert MoveQueue("dbca").turns_of(7) == "abababa"


@pytest.mark.parametrize(("why", "gone"), [("asked", {"assignment_sent_ms": 5.0}), ("held up", {"is_blocked": True})])
def test_who_waits_for_the_controller_or_for_a_disk_makes_room(why: str, gone: dict[str, Any]) -> None:
    queue = MoveQueue("abcd")
    assert queue.turns_of(2) == "ab"
    assert queue.turn(**gone, not_before_ms=NOW_MS + 10) == "a", why
    assert queue.turns_of(4) == "cbcb"
    assert queue.turns_of(3, NOW_MS + 10) == "acb"


def test_who_goes_on_again_counts_again() -> None:
    queue = MoveQueue("abc")
    assert queue.turns_of(2) == "ab"
    queue.turn(is_blocked=True)
    assert queue.turns_of(1) == "c"
    assert [queue.turn(is_blocked=False) for _ in range(3)] == ["b", "a", "c"]
    queue.turns.add(move("d"))
    assert "d" not in queue.turns_of(6)


def test_who_was_put_off_is_not_looked_at_before_and_says_when() -> None:
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


def test_only_those_of_which_the_controller_was_asked_are_looked_at_when_it_has_spoken() -> None:
    queue = MoveQueue("abc")
    queue.turn(assignment_sent_ms=1.0, not_before_ms=NOW_MS + 900)
    queue.turn()
    everything = changed(("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0))
    assert list(queue.turns.moves_awaiting_assignment(everything)) == [queue.moves["a"]]
    assert list(queue.turns.moves_awaiting_assignment(changed(("b", 0), ("a", 1)))) == []


def test_who_is_woken_comes_at_once_and_once() -> None:
    queue = MoveQueue("a")
    queue.turn(assignment_sent_ms=1.0, not_before_ms=NOW_MS + 900)
    for _ in range(2):
        queue.turns.wake(queue.moves["a"])
    assert queue.next() == "a"
    assert queue.next(NOW_MS + 900) == "", "it has its turn"
    queue.after("a", not_before_ms=NOW_MS + 1500)
    assert queue.next(NOW_MS + 1400) == ""
    assert queue.turn(NOW_MS + 1500) == "a"


def test_who_is_woken_while_it_has_its_turn_waits_as_long_as_that_says() -> None:
    queue = MoveQueue("a")
    assert queue.next() == "a"
    queue.turns.wake(queue.moves["a"])
    queue.after("a", not_before_ms=NOW_MS + 5)
    assert queue.next() == ""
    assert queue.next(NOW_MS + 5) == "a"


def test_a_move_that_is_over_takes_nobodys_place() -> None:
    queue = MoveQueue("abc")
    queue.turns_of(2)
    assert queue.next() == "a"
    queue.turns.remove(queue.moves["a"])
    queue.turns.reschedule(queue.moves["a"])
    assert len(queue.turns) == 2
    assert queue.turns_of(4) == "cbcb"


def test_a_move_begun_anew_is_new() -> None:
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


def test_a_move_that_is_given_up_and_begun_again_before_its_first_turn_waits_once() -> None:
    queue = MoveQueue("abc")
    queue.turns_of(2)
    for _ in range(50):
        queue.moves["c"] = move("c")
        queue.turns.add(queue.moves["c"])
    assert len(queue.turns._new) == 1, "while others are copied for hours"
    assert queue.turns_of(3, is_blocked=True, not_before_ms=NOW_MS + 99) == "acb"
    assert queue.next() == ""


class ComparisonCountingTopic(str):
    """A name that counts how often it is held against another."""

    __slots__ = ()
    count = 0

    def __lt__(self, other: str) -> bool:
        ComparisonCountingTopic.count += 1
        return str.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        ComparisonCountingTopic.count += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_turn_among_very_many_looks_at_a_few() -> None:
    turns = MoveScheduler()
    for number in range(20_000):
        turns.add(move(ComparisonCountingTopic(f"t{number:05}")))
    for _ in range(10_000):  # each waits for the controller
        found = turns.next_ready(NOW_MS, MOST)
        assert found is not None
        found.assignment_sent_ms, found.not_before_ms = NOW_MS, NOW_MS + 1000
        turns.reschedule(found)
    for now_ms in (NOW_MS, NOW_MS + 1000):  # half of them have waited long enough then, all at once
        ComparisonCountingTopic.count = 0
        found = turns.next_ready(now_ms, MOST if now_ms == NOW_MS else 0)
        assert found is not None
        assert ComparisonCountingTopic.count < 40 * (1 if now_ms == NOW_MS else MAX_DUE_PER_CALL)
        turns.reschedule(found)
