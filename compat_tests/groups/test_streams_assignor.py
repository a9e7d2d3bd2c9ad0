"""Comparison of the task assignor with Kafka's: members join and leave over several rounds."""

from __future__ import annotations

import os
import random

from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.streams.sticky_task_assignor import (
    AssignmentMemberSpec,
    StreamsGroupSpec,
    SubtopologySpec,
    assign_sticky,
)
from ottla.broker.groups.streams.streams_group import EMPTY_TASKS, TasksBySubtopology, TasksTuple
from ottla.broker.tests.run_steps import run_steps

GROUPS = int(os.environ.get("OTTLA_GROUPS", "2000"))


def format_tasks(tasks: TasksBySubtopology) -> str:
    return "".join(f"{name}:[{','.join(map(str, sorted(tasks[name])))}];" for name in sorted(tasks))


def written(tasks: TasksBySubtopology) -> str:
    return ";".join(f"{name}:{','.join(map(str, sorted(tasks[name])))}" for name in sorted(tasks))


class RandomStreamsGroup:
    """Streams application that changes between rounds."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.standbys = rng.choice([0, 0, 1, 2])
        ids = sorted(str(n) for n in range(rng.randint(1, 12)))
        self.extents = {name: SubtopologySpec(rng.choice([1, 2, 3, 5, 12, 40]), rng.random() < 0.6) for name in ids}
        self.processes = [f"{rng.randrange(10**9):x}" for _ in range(rng.choice([1, 2, 3, 5, 20]))]
        self.process_of: dict[str, str] = {}
        self.had: dict[str, TasksTuple] = {}

    def change(self) -> None:
        rng = self.rng
        for name in [name for name in self.process_of if rng.random() < 0.25]:
            del self.process_of[name]
            self.had.pop(name, None)
        for _ in range(rng.choice([1, 2, 3, 8, 30])):
            self.process_of[f"m{rng.randrange(10**6):x}"] = rng.choice(self.processes)
        if rng.random() < 0.2:
            self.standbys = rng.choice([0, 1, 2])
        self.process_of = {name: self.process_of[name] for name in iteration_order.hash_map_order(self.process_of)}

    def line(self) -> str:
        topology = ";".join(f"{name}:{e.task_count}:{int(e.is_stateful)}" for name, e in self.extents.items())
        rows = []
        for name, process in self.process_of.items():
            had = self.had.get(name, EMPTY_TASKS)
            rows.append(f"{name}={process}={written(had.active)}={written(had.standby)}")
        return f"{self.standbys} {topology} {' '.join(rows)}"

    def ours(self) -> str:
        members = {
            name: AssignmentMemberSpec(process, self.had.get(name, EMPTY_TASKS))
            for name, process in self.process_of.items()
        }
        self.had = run_steps(assign_sticky(StreamsGroupSpec(members, self.extents, self.standbys)))
        return " ".join(
            f"{name}={format_tasks(self.had[name].active)}={format_tasks(self.had[name].standby)}" for name in members
        )


def test_streams_assignor_on_random_groups_equals_kafka() -> None:
    """Sticky task assignor of streams groups (KIP-1071)."""
    lines, ours = [], []
    for seed in range(GROUPS // 4):
        group = RandomStreamsGroup(seed)
        for _ in range(4):
            group.change()
            lines.append(group.line())
            ours.append(group.ours())
    for line, mine, theirs in zip(lines, ours, run_kafka_rules("StreamsTaskAssignments.java", lines), strict=True):
        assert mine == theirs, line
