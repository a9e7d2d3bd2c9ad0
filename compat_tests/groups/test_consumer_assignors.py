"""Comparison of our assignors with Kafka's own classes on the same groups."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from typing import NamedTuple

import pytest

from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules
from ottla.broker.groups.assignors.group_spec import Assignment, GroupSpec, MemberSubscriptionAndAssignment
from ottla.broker.groups.assignors.registry import assignor_by_name
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.tests.run_steps import run_steps

GROUPS = 2_000


class RandomAssignmentGroup(NamedTuple):
    """Topics by index: (id, partitions); members: name, instance, indexes of topics, current partitions by index."""

    assignor: str
    homogeneous: bool
    topics: list[tuple[bytes, int]]
    members: list[tuple[str, str | None, list[int], dict[int, list[int]]]]

    @property
    def to_request_text(self) -> str:
        topics = ",".join(f"{urlsafe_b64encode(i).decode().rstrip('=')}:{n}" for i, n in self.topics)
        rows = []
        for name, instance, wanted, had in self.members:
            held = "+".join(f"{place}={'/'.join(map(str, numbers))}" for place, numbers in had.items())
            rows.append(f"{name};{instance or '-'};{','.join(map(str, wanted)) or '-'};{held or '-'}")
        kind = "HOMOGENEOUS" if self.homogeneous else "HETEROGENEOUS"
        return f"{self.assignor} {kind} {topics} {'|'.join(rows)}"

    def assignment_text(self) -> str:
        claims = {}
        for name, instance, wanted, had in self.members:
            ids = tuple(self.topics[place][0] for place in wanted)
            held = {
                self.topics[place][0]: iteration_order.integer_hash_set_order(numbers) for place, numbers in had.items()
            }
            target: Assignment = {topic: held[topic] for topic in iteration_order.uuid_hash_map_order(held)}
            claims[name] = MemberSubscriptionAndAssignment(ids, len(ids), target, instance)
        members = {name: claims[name] for name in iteration_order.hash_map_order(list(claims))}
        out = run_steps(assignor_by_name(self.assignor)(GroupSpec(members, self.homogeneous, dict(self.topics))))
        rows = []
        for name in sorted(claims):
            parts = [(place, out.get(name, {}).get(topic, ())) for place, (topic, _) in enumerate(self.topics)]
            rows.append(
                f"{name};" + "+".join(f"{p}={'/'.join(map(str, sorted(numbers)))}" for p, numbers in parts if numbers)
            )
        return "|".join(rows)


def some_group(rng: random.Random, name: str, *, homogeneous: bool) -> RandomAssignmentGroup:
    topics = [(rng.randbytes(16), rng.choice([1, 2, 3, 7, 20, 60])) for _ in range(rng.randint(1, 7))]
    places = list(range(len(topics)))
    names = [f"{rng.getrandbits(64):x}-{n}" for n in range(rng.choice([1, 2, 3, 5, 11, 13, 25, 40]))]
    held: dict[str, dict[int, list[int]]] = {member: {} for member in names}
    if rng.random() < 0.8:  # an existing member, perhaps with other members, topics and subscriptions before
        few = rng.sample(names, rng.randint(1, len(names)))
        for place, (_, count) in enumerate(topics):
            if rng.random() < 0.2:
                continue
            for number in rng.sample(range(count), count):
                if rng.random() < 0.9:
                    held[rng.choice(few)].setdefault(place, []).append(number)
    rng.shuffle(places)
    common = places[: rng.randint(0, len(places))] if homogeneous else []
    members = []
    for number, member in enumerate(names):
        wanted = common if homogeneous else [place for place in places if rng.random() < 0.6]
        members.append((member, f"i{number}" if rng.random() < 0.2 else None, wanted, held[member]))
    return RandomAssignmentGroup(name, homogeneous, topics, members)


@pytest.mark.behaviour("C-197", "C-198", "C-199", "C-200", "C-201", "C-202")
@pytest.mark.parametrize(
    ("name", "homogeneous"), [("range", True), ("range", False), ("uniform", True), ("uniform", False)]
)
def test_consumer_assignors_on_random_groups_equal_kafka(name: str, *, homogeneous: bool) -> None:
    rng = random.Random(f"{name} {homogeneous}")
    groups = [some_group(rng, name, homogeneous=homogeneous) for _ in range(GROUPS)]
    theirs = run_kafka_rules("ConsumerAssignments.java", [group.to_request_text for group in groups])
    wrong = [
        (g.to_request_text, g.assignment_text(), t)
        for g, t in zip(groups, theirs, strict=True)
        if g.assignment_text() != t
    ]
    assert not wrong, (len(wrong), wrong[:2])
    assert len(set(theirs)) > GROUPS / 2
