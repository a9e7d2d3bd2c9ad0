"""Comparison of the share assignor with Kafka's: joins, leaves and changed subscriptions over several rounds."""

from __future__ import annotations

import os
import random

import pytest

from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules
from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.assignors.simple_assignor import ShareGroupSpec, ShareMemberSubscription, assign_simple
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.tests.run_steps import run_steps

GROUPS = int(os.environ.get("OTTLA_GROUPS", "2000"))
MASK = 0xFFFFFFFFFFFFFFFF


def topic_id(number: int) -> bytes:
    return ((number * 0x9E3779B97F4A7C15 & MASK) << 64 | number).to_bytes(16, "big")


class RandomShareGroup:
    """Share group that changes between rounds."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.counts = {number: rng.choice([0, 1, 2, 3, 5, 8, 17, 40]) for number in range(1, rng.randint(2, 6))}
        self.ready = {
            n: tuple(p for p in range(c) if rng.random() < rng.choice([0.8, 1.0])) for n, c in self.counts.items()
        }
        self.homogeneous = rng.random() < 0.5
        self.same = self.some_topics()
        self.wants: dict[str, tuple[int, ...]] = {}
        self.had: dict[str, Assignment] = {}

    def some_topics(self) -> tuple[int, ...]:
        return tuple(n for n in self.counts if self.rng.random() < 0.7) or (1,)

    def change(self) -> None:
        """Let members join and leave; sometimes change all subscriptions."""
        rng = self.rng
        for name in [name for name in self.wants if rng.random() < 0.25]:
            del self.wants[name]
            self.had.pop(name, None)
        for _ in range(rng.choice([1, 2, 3, 8, 30])):
            self.wants[f"m{rng.randrange(10**6):x}"] = self.some_topics()
        if rng.random() < 0.3:
            self.same = self.some_topics()
        if self.homogeneous:
            self.wants = dict.fromkeys(self.wants, self.same)
        order = iteration_order.hash_map_order(self.wants)
        self.wants = {name: self.wants[name] for name in order}

    def line(self) -> str:
        topics = ";".join(f"{n}/{c}/{','.join(map(str, self.ready[n]))}" for n, c in self.counts.items())
        rows = []
        for name, wanted in self.wants.items():
            had = ";".join(
                f"{n}:{','.join(map(str, self.had.get(name, {}).get(topic_id(n), ())))}"
                for n in self.counts
                if topic_id(n) in self.had.get(name, {})
            )
            rows.append(f"{name}={';'.join(map(str, wanted))}={had}")
        return f"{int(self.homogeneous)} {topics} {' '.join(rows)}"

    def ours(self) -> str:
        members = {}
        for name, wanted in self.wants.items():
            topics = tuple(iteration_order.uuid_hash_map_order([topic_id(n) for n in wanted], copied_from=len(wanted)))
            had = self.had.get(name, {})
            target = {
                topic: had[topic]
                for topic in iteration_order.uuid_hash_map_order(
                    [topic_id(n) for n in self.counts if topic_id(n) in had]
                )
            }
            members[name] = ShareMemberSubscription(topics, len(wanted), target)
        spec = ShareGroupSpec(members, self.homogeneous, {topic_id(n): ready for n, ready in self.ready.items()})
        self.had = run_steps(assign_simple(spec))
        rows = []
        for name in self.wants:
            got = self.had.get(name, {})
            parts = [(str(n), sorted(got.get(topic_id(n), ()))) for n in self.counts]
            rows.append(f"{name}=" + "".join(f"{n}:[{','.join(map(str, p))}];" for n, p in sorted(parts) if p))
        return " ".join(rows)


@pytest.mark.behaviour("C-203", "C-204")
def test_share_assignor_on_random_groups_equals_kafka() -> None:
    lines, ours = [], []
    for seed in range(GROUPS // 4):
        group = RandomShareGroup(seed)
        for _ in range(4):
            group.change()
            lines.append(group.line())
            ours.append(group.ours())
    wrong = 0
    for line, mine, theirs in zip(lines, ours, run_kafka_rules("ShareAssignments.java", lines), strict=True):
        if theirs == "no members":
            wrong += 1  # Kafka's class fails with this group, and the heartbeat with it
        else:
            assert mine == theirs, line
    assert wrong < len(lines) / 20
