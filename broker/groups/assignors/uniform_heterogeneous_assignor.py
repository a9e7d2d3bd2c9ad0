"""Uniform assignor for different subscriptions: as even as the subscriptions allow, with few moves.

Unassigned partitions are assigned to the members with the fewest; then, topic by topic, partitions move from the
members with the most to those with the fewest, until a round moves none or after sixteen rounds.

Source: ``UniformHeterogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.groups.assignors.group_spec import (
    PARTITIONS_PER_STEP,
    Assignment,
    AssignmentJob,
    GroupSpec,
    MutableAssignment,
    PartitionAssignorException,
    freeze_assignment,
    mutable_copy,
)

MAX_ITERATIONS = 16


class _SubscriberBalancer:
    """Iterator over a topic's subscribers: least loaded ones ascending, most loaded ones descending.

    ``sizes``: number of assigned partitions by member index. The least and the most loaded members are each a range of
    the sorted subscribers with equally many partitions, which grows as that number changes.
    """

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._members: list[int] = []

    def start_topic(self, subscribers: list[int]) -> int:
        """Reset to a topic's subscribers; return their largest minus their smallest number of partitions."""
        self._members = members = sorted(subscribers, key=lambda member: (self._sizes[member], member))
        self._least_end = 0
        self._least_level = self._sizes[members[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(members)
        self._most_level = self._sizes[members[-1]] + 1
        self._next_most = len(members) - 1
        return self._sizes[members[-1]] - self._sizes[members[0]]

    def next_least_loaded(self) -> int:
        """Return the member index of the next subscriber with the fewest partitions, and advance."""
        members = self._members
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(members) and self._sizes[members[self._least_end]] == self._least_level:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return members[self._next_least - 1]

    def next_most_loaded(self) -> int:
        """Return the member index of the next subscriber with the most partitions, and advance; -1 if there is none."""
        members = self._members
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_level = self._sizes[members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._sizes[members[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return -1
        self._next_most -= 1
        return members[self._next_most + 1]

    def exclude_last(self) -> None:
        """Exclude the member last returned by `next_most_loaded`, which has no movable partition."""
        members, at, end = self._members, self._next_most + 1, self._most_end - 1
        members[at], members[end] = members[end], members[at]
        self._most_end -= 1

    @property
    def is_balanced(self) -> bool:
        """True if the numbers of partitions of most and least loaded subscribers differ by at most 1."""
        return self._most_level - self._least_level <= 1


class _HeterogeneousAssignment:
    """Target assignment under construction.

    Members are indices, owners (-1: none) are listed by topic and partition.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.ids = list(spec.members)
        self.subscribers: dict[bytes, list[int]] = {}
        self.sizes = [0] * len(self.ids)
        self.owners: dict[bytes, list[int]] = {}
        self.mutable_assignments: dict[int, MutableAssignment] = {}

    def initialize(self) -> Generator[None, None, None]:
        """Collect the subscribers of each topic and the partitions that members retain, as a job.

        Raises:
            PartitionAssignorException: a member's current target has a partition that does not exist.
        """
        for number, claim in enumerate(self.spec.members.values()):
            for topic in claim.topics:
                if topic not in self.owners:
                    self.owners[topic] = [-1] * self.spec.partitions[topic]
                    self.subscribers[topic] = []
                self.subscribers[topic].append(number)
            yield
        for number, claim in enumerate(self.spec.members.values()):
            wanted = set(claim.topics)
            for topic, partitions in claim.assignment.items():
                if topic not in wanted:
                    del self.mutable_assignment(number)[topic]
                    continue
                self.sizes[number] += len(partitions)
                owners = self.owners[topic]
                for partition in partitions:
                    if not 0 <= partition < len(owners):
                        raise PartitionAssignorException(f"Partition {partition} does not exist")
                    owners[partition] = number
            yield

    def mutable_assignment(self, number: int) -> MutableAssignment:
        """Return a member's target (by index) for modification: a copy of the current one, made at the first call."""
        if number not in self.mutable_assignments:
            self.mutable_assignments[number] = mutable_copy(self.spec.members[self.ids[number]].assignment)
        return self.mutable_assignments[number]

    def assign_partition(self, topic: bytes, partition: int, number: int) -> None:
        """Assign a partition to a member (by index) and remove it from its previous owner, if any."""
        before = self.owners[topic][partition]
        if before >= 0:
            draft = self.mutable_assignment(before)
            draft[topic].pop(partition, None)
            if not draft[topic]:
                del draft[topic]
            self.sizes[before] -= 1
        self.mutable_assignment(number).setdefault(topic, {})[partition] = None
        self.owners[topic][partition] = number
        self.sizes[number] += 1

    def sorted_topics(self, topics: list[bytes]) -> list[bytes]:
        """Return topics sorted by partitions per subscriber (descending), number of subscribers, id (signed halves)."""

        def key(topic: bytes) -> tuple[float, int, int, int]:
            high, low = (int.from_bytes(part, "big", signed=True) for part in (topic[:8], topic[8:]))
            many = len(self.subscribers[topic])
            return -self.spec.partitions[topic] / many, many, high, low

        return sorted(topics, key=key)


def assign_heterogeneous(spec: GroupSpec) -> AssignmentJob:
    """Return the target assignment by member id, as even as different subscriptions allow, as a job.

    Raises:
        PartitionAssignorException: the current target of a member has a partition that does not exist.
    """
    work = _HeterogeneousAssignment(spec)
    yield from work.initialize()
    if not work.owners:
        return {}
    balancer = _SubscriberBalancer(work.sizes)
    for topic in work.sorted_topics([topic for topic, owners in work.owners.items() if -1 in owners]):
        balancer.start_topic(work.subscribers[topic])
        for partition, owner in enumerate(list(work.owners[topic])):
            if owner < 0:
                work.assign_partition(topic, partition, balancer.next_least_loaded())
            if partition % PARTITIONS_PER_STEP == 0:
                yield
        yield
    yield from _balance(work, balancer)
    out: dict[str, Assignment] = {}
    for number, (member_id, claim) in enumerate(spec.members.items()):
        out[member_id] = (
            freeze_assignment(work.mutable_assignments[number])
            if number in work.mutable_assignments
            else claim.assignment
        )
        yield
    return out


def _balance(work: _HeterogeneousAssignment, balancer: _SubscriberBalancer) -> Generator[None, None, None]:
    """Move partitions topic by topic until a whole round moves none, at most `MAX_ITERATIONS` rounds, as a job."""
    topics = work.sorted_topics([topic for topic, members in work.subscribers.items() if len(members) >= 2])
    last = -1
    for _ in range(MAX_ITERATIONS):
        for at, topic in enumerate(topics):
            if at == last:
                return
            moved = yield from _balance_topic(work, balancer, topic)
            if moved or last < 0:
                last = at


def _balance_topic(
    work: _HeterogeneousAssignment, balancer: _SubscriberBalancer, topic: bytes
) -> Generator[None, None, int]:
    """Move partitions of a topic from the most to the least loaded subscribers, as a job; return how many moved."""
    yield
    if balancer.start_topic(work.subscribers[topic]) <= 1:
        return 0
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(work.owners[topic]):
        held.setdefault(owner, []).append(partition)
    moved = 0
    while not balancer.is_balanced:
        giver = balancer.next_most_loaded()
        while giver >= 0 and not held.get(giver):
            balancer.exclude_last()
            giver = balancer.next_most_loaded()
        if giver < 0:
            break
        partition = held[giver].pop()
        taker = balancer.next_least_loaded()
        if balancer.is_balanced:
            break
        work.assign_partition(topic, partition, taker)
        moved += 1
        if moved % PARTITIONS_PER_STEP == 0:
            yield
    return moved
