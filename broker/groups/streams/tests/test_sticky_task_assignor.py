"""Sticky assignor of streams groups and its heap (C-205 to C-207).

compat_tests compare it with Kafka's own class.
"""

from __future__ import annotations

import pytest

from ottla.broker.groups.java_collections.priority_queue import JavaPriorityQueue
from ottla.broker.groups.streams.sticky_task_assignor import (
    TASKS_PER_STEP,
    AssignmentMemberSpec,
    StreamsGroupSpec,
    SubtopologySpec,
    assign_sticky,
)
from ottla.broker.groups.streams.streams_group import EMPTY_TASKS, TasksBySubtopology, TasksTuple
from ottla.broker.tests.run_steps import run_steps

TWO = {"0": SubtopologySpec(4, is_stateful=False), "1": SubtopologySpec(3, is_stateful=True)}


def dealt(
    members: dict[str, AssignmentMemberSpec], extents: dict[str, SubtopologySpec] = TWO, standbys: int = 0
) -> dict[str, TasksTuple]:
    return run_steps(assign_sticky(StreamsGroupSpec(members, extents, standbys)))


def flat(tasks: TasksBySubtopology) -> str:
    return " ".join(f"{name}_{number}" for name in sorted(tasks) for number in sorted(tasks[name]))


def new(**process_of: str) -> dict[str, AssignmentMemberSpec]:
    return {name: AssignmentMemberSpec(process, EMPTY_TASKS) for name, process in process_of.items()}


def test_assign_sticky_equals_vector_of_kafkas_assignor() -> None:
    out = dealt(new(alpha="p1", delta="p2", beta="p1", gamma="p2"), TWO, 1)
    assert {name: (flat(target.active), flat(target.standby)) for name, target in out.items()} == {
        "alpha": ("0_0 1_0", "1_1"),
        "beta": ("0_2 1_2", ""),
        "delta": ("0_1 1_1", "1_0"),
        "gamma": ("0_3", "1_2"),
    }


def test_assign_sticky_keeps_previous_active_tasks() -> None:
    before = dealt(new(a="p1", b="p2"))
    after = dealt({name: AssignmentMemberSpec(process, before[name]) for name, process in (("a", "p1"), ("b", "p2"))})
    assert after == before
    third = dealt(
        {
            "a": AssignmentMemberSpec("p1", before["a"]),
            "b": AssignmentMemberSpec("p2", before["b"]),
            "c": AssignmentMemberSpec("p3", EMPTY_TASKS),
        },
    )
    for name in ("a", "b"):
        assert set(flat(third[name].active).split()) <= set(flat(before[name].active).split())
    assert sorted(len(flat(target.active).split()) for target in third.values()) == [2, 2, 3]


def test_assign_sticky_prefers_previous_standby() -> None:
    stood_by = TasksTuple({}, {"1": frozenset({0, 1, 2})}, {})
    out = dealt(
        {"a": AssignmentMemberSpec("p1", EMPTY_TASKS), "b": AssignmentMemberSpec("p2", stood_by)},
        {"1": SubtopologySpec(3, is_stateful=True)},
    )
    assert flat(out["b"].active) == "1_0 1_1"


def test_assign_sticky_places_each_task_once_per_process() -> None:
    out = dealt(new(a="p1", b="p1", c="p2"), {"1": SubtopologySpec(3, is_stateful=True)}, 2)
    for members in (("a", "b"), ("c",)):
        tasks = [task for name in members for tasks in out[name][:2] for task in flat(tasks).split()]
        assert len(tasks) == len(set(tasks)) == 3
    assert not flat(dealt(new(a="p1"), {"0": SubtopologySpec(3, is_stateful=True)}, 1)["a"].standby)


def test_assign_sticky_previous_standby_in_process_with_task_is_passed_over() -> None:
    """The second of the previous standby members is less loaded, but its process has the active task."""
    stood_by = {"0": frozenset({0})}

    def member(process: str, active: TasksBySubtopology, standby: TasksBySubtopology) -> AssignmentMemberSpec:
        return AssignmentMemberSpec(process, TasksTuple(active, standby))

    members = {
        "b": member("p2", {"1": frozenset({0})}, stood_by),
        "c": member("p1", {}, stood_by),
        "a": member("p1", {"0": frozenset({0})}, {}),
        "d": member("p1", {"1": frozenset({1})}, {}),
    }
    out = dealt(members, {"0": SubtopologySpec(1, is_stateful=True), "1": SubtopologySpec(2, is_stateful=False)}, 1)
    assert {name: flat(target.standby) for name, target in out.items() if target.standby} == {"b": "0_0"}


def test_assign_sticky_stateless_tasks_have_no_standby() -> None:
    out = dealt(new(a="p1", b="p2"), {"0": SubtopologySpec(4, is_stateful=False)}, 1)
    assert not any(target.standby for target in out.values())


def test_assign_sticky_many_tasks_yields_between_steps() -> None:
    steps = assign_sticky(StreamsGroupSpec(new(a="p1", b="p2"), {"0": SubtopologySpec(1_000, is_stateful=True)}, 1))
    assert sum(1 for _ in steps) > 1_000


def test_assign_sticky_steps_have_equally_many_tasks() -> None:
    """With one task in each subtopology there is one round by partition; the others go by number of tasks."""
    extents = {str(number): SubtopologySpec(1, is_stateful=True) for number in range(10 * TASKS_PER_STEP)}
    steps = sum(1 for _ in assign_sticky(StreamsGroupSpec(new(a="p1", b="p2"), extents, 1)))
    assert steps == 2 + 3 * 10, "rounds of both roles, and three loops over all tasks"


@pytest.mark.parametrize(
    ("ranks", "out"),
    [
        ("a1 b1 c1 d1", "a d c b"),
        ("a2 b1 c2 d1", "b d c a"),
        ("a3 b2 c1", "c b a"),
        ("a1", "a"),
    ],
)
def test_java_priority_queue_orders_equal_elements_as_java(ranks: str, out: str) -> None:
    queue = JavaPriorityQueue(lambda text: float(text[1:]), ranks.split())
    assert " ".join(queue.poll()[0] for _ in range(len(queue))) == out
