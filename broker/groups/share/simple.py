"""The assignor of share groups, ``simple``: every partition goes to equally many members, and each gets equally many.

Partitions are shared, so where there are more members than partitions several read one. What a member has it keeps,
if it is not too much.

Source: ``SimpleAssignor.java``, ``SimpleHomogeneousAssignmentBuilder.java``,
``SimpleHeterogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from math import ceil
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import Assigning, Target
from ottla.broker.groups.java_map import JavaMap, room_for

Place = tuple[bytes, int]
Draft = dict[bytes, dict[int, None]]
"""A target that is being changed."""
P = TypeVar("P", bound=Hashable)


class Sharer(NamedTuple):
    """What a member wants and has: ids of topics that exist, how many it named, its target so far."""

    topics: tuple[bytes, ...]
    named: int
    target: Target


class ShareSpec(NamedTuple):
    """A group: members in the order Kafka looks at them, whether all want the same, partitions that are initialised."""

    members: Mapping[str, Sharer]
    homogeneous: bool
    partitions: Mapping[bytes, tuple[int, ...]]
    """Ascending."""


def _number(value: int) -> int:
    return value


def place_hash(place: Place) -> int:
    """``TopicIdPartition.hashCode`` of the coordinator's record."""
    return (31 * java_order.id_hash(place[0]) + place[1]) & 0xFFFFFFFF


def assign(spec: ShareSpec) -> Assigning:
    """Share everything out, in steps."""
    if not spec.members:
        return {}
    drafts = {name: {t: dict.fromkeys(parts) for t, parts in m.target.items()} for name, m in spec.members.items()}
    if spec.homogeneous:
        yield from _homogeneous(spec, list(drafts.values()))
    else:
        yield from _heterogeneous(spec, list(drafts.values()))
    every = {topic for member in spec.members.values() for topic in member.topics}
    if not every:
        return {}
    return {
        name: {topic: java_order.numbers(parts) for topic, parts in draft.items() if parts or topic in every}
        for name, draft in drafts.items()
    }


class _Sharing(NamedTuple):
    """How many members a partition goes to, and how many partitions each member gets."""

    sharing: int
    desired: list[int]

    @classmethod
    def of(cls, targets: int, members: int) -> _Sharing:
        """Evenly; where it does not divide, some get one more."""
        sharing = (members + targets - 1) // targets if targets else 0
        exact = sharing * targets / members
        return cls(sharing, [ceil(exact * (i + 1)) - ceil(exact * i) for i in range(members)])


class _Round(Generic[P]):
    """Sharing out partitions among members by number: all of a group's at once, or one topic's after the other."""

    def __init__(
        self,
        hash_of: Callable[[P], int],
        place: Callable[[P], Place],
        targets: list[P],
        members: list[int],
        drafts: list[Draft],
    ) -> None:
        sharing = _Sharing.of(len(targets), len(members))
        self._sharing = sharing.sharing
        self._desired = dict(zip(members, sharing.desired, strict=True))
        self._targets = targets
        self._members = members
        self.by_partition: JavaMap[P, JavaMap[int, None]] = JavaMap(hash_of, room_for(len(targets)))
        self.by_member: JavaMap[int, JavaMap[P, None]] = JavaMap(_number, room_for(len(members)))
        self._hash_of = hash_of
        self._drafts = drafts
        self._place = place
        self.unfilled: JavaMap[int, None] = JavaMap(_number, room_for(len(drafts)))

    def holds(self, member: int, partition: P) -> None:
        """A member has this now."""
        self.by_partition.compute_if_absent(partition, lambda: JavaMap(_number)).put(member, None)
        self.by_member.compute_if_absent(member, lambda: JavaMap(self._hash_of)).put(partition, None)

    def count(self, member: int) -> int:
        """How many it has."""
        held = self.by_member.get(member)
        return 0 if held is None else len(held)

    def lacks(self, member: int) -> bool:
        """Whether it should have more."""
        return self.count(member) < self._desired.get(member, 0)

    def exceeds(self, member: int) -> bool:
        """Whether it has too much."""
        return self.count(member) > self._desired.get(member, 0)

    def want(self, room: int | None = None) -> None:
        """Targets that nobody has are there too."""
        for partition in self._targets:
            self.by_partition.compute_if_absent(partition, lambda: JavaMap(_number, room or 16))

    def _drop(self, member: int, partition: P) -> bool:
        topic, number = self._place(partition)
        parts = self._drafts[member].get(topic, {})
        if number not in parts:
            return False
        del parts[number]
        return True

    def take_from(self, members: Iterator[int]) -> None:
        """Members with too much lose the first of what they have."""
        for member in members:
            held = self.by_member[member]
            for partition in list(held):
                if not self.exceeds(member):
                    break
                self._drop(member, partition)
                self.by_partition[partition].remove(member)
                held.remove(partition)

    def unshare(self, lost: Callable[[int], None]) -> Iterator[None]:
        """Partitions that too many read lose the first of their readers."""
        for partition in self.by_partition:
            readers = self.by_partition[partition]
            for member in list(readers):
                if len(readers) <= self._sharing:
                    break
                if self._drop(member, partition):
                    readers.remove(member)
                    self.by_member[member].remove(partition)
                    lost(member)
            yield

    def hand_out(self) -> Iterator[None]:
        """Partitions that too few read go to members with too little, one after the other and round again."""
        waiting, assigned = iter(self.unfilled), False
        for partition in self.by_partition:
            readers = self.by_partition[partition]
            while len(readers) < self._sharing:
                member = next(waiting, None)
                if member is None:
                    if not assigned or not self.unfilled:
                        break
                    waiting, assigned = iter(self.unfilled), False
                    continue
                if member in readers:
                    continue
                topic, number = self._place(partition)
                self._drafts[member].setdefault(topic, {})[number] = None
                readers.put(member, None)
                self.by_member.compute_if_absent(member, lambda: JavaMap(self._hash_of)).put(partition, None)
                assigned = True
                if not self.lacks(member):
                    self.unfilled.remove(member)
            if not self.unfilled:
                break
            yield


def _homogeneous(spec: ShareSpec, drafts: list[Draft]) -> Iterator[None]:
    first = next(iter(spec.members.values()))
    topics = java_order.ids(first.topics, copied_from=first.named)
    targets = [(topic, number) for topic in topics for number in spec.partitions[topic]]
    everybody = list(range(len(drafts)))
    each: _Round[Place] = _Round(place_hash, lambda place: place, targets, everybody, drafts)
    yield
    too_much: JavaMap[int, None] = JavaMap(_number, room_for(len(drafts)))
    for member, sharer in enumerate(spec.members.values()):
        for topic, numbers in sharer.target.items():
            if topic not in first.topics:
                del drafts[member][topic]
                continue
            for number in numbers:
                each.holds(member, (topic, number))
        if each.lacks(member):
            each.unfilled.put(member, None)
        elif each.exceeds(member):
            too_much.put(member, None)
        yield
    each.take_from(iter(too_much))
    yield from each.unshare(lambda member: each.unfilled.put(member, None))
    each.want()
    if each.unfilled:
        yield from each.hand_out()


def _heterogeneous(spec: ShareSpec, drafts: list[Draft]) -> Iterator[None]:
    readers: dict[bytes, list[int]] = {}
    for member, sharer in enumerate(spec.members.values()):
        for topic in sharer.topics:
            readers.setdefault(topic, []).append(member)
    for topic in java_order.ids(readers):
        yield from _one_topic(spec, drafts, topic, readers[topic])


def _one_topic(spec: ShareSpec, drafts: list[Draft], topic: bytes, readers: list[int]) -> Iterator[None]:
    each: _Round[int] = _Round(_number, lambda number: (topic, number), list(spec.partitions[topic]), readers, drafts)
    for member, sharer in enumerate(spec.members.values()):
        for number in sharer.target.get(topic, ()):
            each.holds(member, number)
    yield
    each.take_from(iter(each.by_member))
    yield from each.unshare(lambda member: None)
    each.want(room_for(len(readers)))
    for member in readers:
        if each.lacks(member):
            each.unfilled.put(member, None)
    yield from each.hand_out()
