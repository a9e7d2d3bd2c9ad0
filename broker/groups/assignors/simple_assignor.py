"""Assignor of share groups, ``simple``: equally many members per partition and equally many partitions per member.

A partition may be assigned to several members, since share groups share partitions. Members keep their current
partitions up to their quota.

Source: ``SimpleAssignor.java``, ``SimpleHomogeneousAssignmentBuilder.java``,
``SimpleHeterogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from math import ceil
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.groups.assignors.group_spec import Assignment, AssignmentJob
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.java_collections.hash_map import JavaHashMap, table_size_for

TargetPartition = tuple[bytes, int]
MutableAssignment = dict[bytes, dict[int, None]]
"""Target assignment of a member under construction: topic id -> partition -> None (an ordered set)."""
P = TypeVar("P", bound=Hashable)


class ShareMemberSubscription(NamedTuple):
    """Member as input of the assignor: ids of existing subscribed topics, number of subscribed names, target."""

    topics: tuple[bytes, ...]
    subscribed_name_count: int
    assignment: Assignment


class ShareGroupSpec(NamedTuple):
    """Share group as input of the assignor.

    Members are in Kafka's iteration order; ``homogeneous``: all members subscribe to the same topics; ``partitions``:
    the partitions with initialized share state, by topic id.
    """

    members: Mapping[str, ShareMemberSubscription]
    homogeneous: bool
    partitions: Mapping[bytes, tuple[int, ...]]
    """Initialized partitions by topic id, ascending."""


def _integer_hash(value: int) -> int:
    return value


def target_partition_hash(place: TargetPartition) -> int:
    """Return ``TargetPartition.hashCode`` (Java record of topic id and partition) as an unsigned 32-bit integer."""
    return (31 * iteration_order.uuid_hash(place[0]) + place[1]) & 0xFFFFFFFF


def assign_simple(spec: ShareGroupSpec) -> AssignmentJob:
    """Return the target assignment of a share group by member id, as a job."""
    if not spec.members:
        return {}
    drafts = {name: {t: dict.fromkeys(parts) for t, parts in m.assignment.items()} for name, m in spec.members.items()}
    if spec.homogeneous:
        yield from _homogeneous(spec, list(drafts.values()))
    else:
        yield from _heterogeneous(spec, list(drafts.values()))
    every = {topic for member in spec.members.values() for topic in member.topics}
    if not every:
        return {}
    return {
        name: {
            topic: iteration_order.integer_hash_set_order(parts)
            for topic, parts in draft.items()
            if parts or topic in every
        }
        for name, draft in drafts.items()
    }


class _ShareQuota(NamedTuple):
    """Number of members per partition and of partitions per member."""

    members_per_partition: int
    partitions_per_member: list[int]

    @classmethod
    def compute(cls, targets: int, members: int) -> _ShareQuota:
        """Return the quotas for ``targets`` partitions and ``members`` members; ``members`` must not be 0.

        The quotas of partitions per member differ by at most 1 and are listed by member index.
        """
        sharing = (members + targets - 1) // targets if targets else 0
        exact = sharing * targets / members
        return cls(sharing, [ceil(exact * (i + 1)) - ceil(exact * i) for i in range(members)])


class _ShareBalancer(Generic[P]):
    """Balancer of partitions among members, for all partitions of a homogeneous group, or for one topic otherwise.

    Members are indices into ``drafts``; ``place`` converts a partition of type P to (topic id, partition).
    """

    def __init__(
        self,
        hash_of: Callable[[P], int],
        place: Callable[[P], TargetPartition],
        targets: list[P],
        members: list[int],
        drafts: list[MutableAssignment],
    ) -> None:
        sharing = _ShareQuota.compute(len(targets), len(members))
        self._sharing = sharing.members_per_partition
        self._desired = dict(zip(members, sharing.partitions_per_member, strict=True))
        self._targets = targets
        self.by_partition: JavaHashMap[P, JavaHashMap[int, None]] = JavaHashMap(hash_of, table_size_for(len(targets)))
        self.by_member: JavaHashMap[int, JavaHashMap[P, None]] = JavaHashMap(
            _integer_hash, table_size_for(len(members))
        )
        self._hash_of = hash_of
        self._drafts = drafts
        self._to_target_partition = place
        self.members_below_quota: JavaHashMap[int, None] = JavaHashMap(_integer_hash, table_size_for(len(drafts)))

    def add(self, member: int, partition: P) -> None:
        """Record a partition as assigned to a member, in ``by_partition`` and ``by_member``; drafts are unchanged."""
        self.by_partition.compute_if_absent(partition, lambda: JavaHashMap(_integer_hash)).put(member, None)
        self.by_member.compute_if_absent(member, lambda: JavaHashMap(self._hash_of)).put(partition, None)

    def count(self, member: int) -> int:
        """Return the number of partitions assigned to a member."""
        held = self.by_member.get(member)
        return 0 if held is None else len(held)

    def is_below_quota(self, member: int) -> bool:
        """Return True if the member has fewer partitions than its quota."""
        return self.count(member) < self._desired.get(member, 0)

    def is_above_quota(self, member: int) -> bool:
        """Return True if the member has more partitions than its quota."""
        return self.count(member) > self._desired.get(member, 0)

    def add_missing_targets(self, initial_capacity: int | None = None) -> None:
        """Add the target partitions without an entry in ``by_partition``, with an empty set of members.

        ``initial_capacity``: number of buckets of such a set; None for 16.
        """
        for partition in self._targets:
            self.by_partition.compute_if_absent(partition, lambda: JavaHashMap(_integer_hash, initial_capacity or 16))

    def _remove_assigned(self, member: int, partition: P) -> None:
        topic, number = self._to_target_partition(partition)
        del self._drafts[member][topic][number]

    def revoke_above_quota(self, members: Iterator[int]) -> None:
        """Revoke partitions from those of ``members`` above their quota, also in the drafts, first added first."""
        for member in members:
            held = self.by_member[member]
            for partition in list(held):
                if not self.is_above_quota(member):
                    break
                self._remove_assigned(member, partition)
                self.by_partition[partition].remove(member)
                held.remove(partition)

    def revoke_overshared(self, lost: Callable[[int], None]) -> Iterator[None]:
        """Revoke partitions from members where they are assigned to more members than the quota, as a job.

        ``lost`` is called with the index of each member that loses one.
        """
        for partition in self.by_partition:
            readers = self.by_partition[partition]
            for member in list(readers):
                if len(readers) <= self._sharing:
                    break
                self._remove_assigned(member, partition)
                readers.remove(member)
                self.by_member[member].remove(partition)
                lost(member)
            yield

    def assign_undershared(self) -> Iterator[None]:
        """Assign partitions with fewer members than the quota to `members_below_quota`, also in the drafts, as a job.

        Round robin. The caller fills `members_below_quota`; members that reach their own quota are removed from it. A
        partition stays as it is if none of the remaining ones can take it.
        """
        waiting, assigned = iter(self.members_below_quota), False
        for partition in self.by_partition:
            readers = self.by_partition[partition]
            while len(readers) < self._sharing:
                member = next(waiting, None)
                if member is None:
                    if not assigned or not self.members_below_quota:
                        break
                    waiting, assigned = iter(self.members_below_quota), False
                    continue
                if member in readers:
                    continue
                topic, number = self._to_target_partition(partition)
                self._drafts[member].setdefault(topic, {})[number] = None
                readers.put(member, None)
                self.by_member.compute_if_absent(member, lambda: JavaHashMap(self._hash_of)).put(partition, None)
                assigned = True
                if not self.is_below_quota(member):
                    self.members_below_quota.remove(member)
            if not self.members_below_quota:
                break
            yield


def _homogeneous(spec: ShareGroupSpec, drafts: list[MutableAssignment]) -> Iterator[None]:
    first = next(iter(spec.members.values()))
    topics = iteration_order.uuid_hash_map_order(first.topics, copied_from=first.subscribed_name_count)
    targets = [(topic, number) for topic in topics for number in spec.partitions[topic]]
    everybody = list(range(len(drafts)))
    each: _ShareBalancer[TargetPartition] = _ShareBalancer(
        target_partition_hash, lambda place: place, targets, everybody, drafts
    )
    yield
    too_much: JavaHashMap[int, None] = JavaHashMap(_integer_hash, table_size_for(len(drafts)))
    for member, sharer in enumerate(spec.members.values()):
        for topic, numbers in sharer.assignment.items():
            if topic not in first.topics:
                del drafts[member][topic]
                continue
            for number in numbers:
                each.add(member, (topic, number))
        if each.is_below_quota(member):
            each.members_below_quota.put(member, None)
        elif each.is_above_quota(member):
            too_much.put(member, None)
        yield
    each.revoke_above_quota(iter(too_much))
    yield from each.revoke_overshared(lambda member: each.members_below_quota.put(member, None))
    each.add_missing_targets()
    if each.members_below_quota:
        yield from each.assign_undershared()


def _heterogeneous(spec: ShareGroupSpec, drafts: list[MutableAssignment]) -> Iterator[None]:
    readers: dict[bytes, list[int]] = {}
    for member, sharer in enumerate(spec.members.values()):
        for topic in sharer.topics:
            readers.setdefault(topic, []).append(member)
    for topic in iteration_order.uuid_hash_map_order(readers):
        yield from _assign_topic(spec, drafts, topic, readers[topic])


def _assign_topic(
    spec: ShareGroupSpec, drafts: list[MutableAssignment], topic: bytes, readers: list[int]
) -> Iterator[None]:
    each: _ShareBalancer[int] = _ShareBalancer(
        _integer_hash, lambda number: (topic, number), list(spec.partitions[topic]), readers, drafts
    )
    for member, sharer in enumerate(spec.members.values()):
        for number in sharer.assignment.get(topic, ()):
            each.add(member, number)
    yield
    each.revoke_above_quota(iter(each.by_member))
    yield from each.revoke_overshared(lambda member: None)
    each.add_missing_targets(table_size_for(len(readers)))
    for member in readers:
        if each.is_below_quota(member):
            each.members_below_quota.put(member, None)
    yield from each.assign_undershared()
