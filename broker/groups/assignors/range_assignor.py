"""Range assignor: each topic is divided into ranges of partitions, which its subscribers receive in order.

Static members precede dynamic ones: the former in order of instance ids, the latter of member ids.

Source: ``RangeAssignor.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.assignors.group_spec import Assignment, AssignmentJob, GroupSpec
from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key


class _TopicAssignment:
    """Partitions of a topic, divided into one range for each subscriber."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.subscribers = 0
        self._next = 0
        self._extra = -1

    def next_range(self) -> range:
        """Return the range of the next subscriber; with a remainder, the first subscribers get one partition more."""
        if self._extra < 0:
            self._extra = self.partitions % self.subscribers
        quota = self.partitions // self.subscribers
        if self._extra > 0:
            quota += 1
            self._extra -= 1
        start, self._next = self._next, min(self._next + quota, self.partitions)
        return range(start, self._next)


def _in_order(spec: GroupSpec) -> list[str]:
    """Return the member ids: static members by instance id, then dynamic ones by member id, in Java's string order."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = spec.members[member_id].instance_id
        return instance is None, java_string_sort_key(member_id if instance is None else instance)

    return sorted(spec.members, key=key)


def assign_range(spec: GroupSpec) -> AssignmentJob:
    """Return the target assignment by member id, with each topic's partitions in contiguous ranges, as a job."""
    topics: dict[bytes, _TopicAssignment] = {}
    order = _in_order(spec)
    for member_id in order:
        for topic in spec.members[member_id].topics:
            if topic not in topics:
                topics[topic] = _TopicAssignment(spec.partitions[topic])
            topics[topic].subscribers += 1
        yield
    out: dict[str, Assignment] = {}
    for member_id in order:
        target: dict[bytes, tuple[int, ...]] = {}
        for topic in spec.members[member_id].topics:
            part = tuple(topics[topic].next_range())
            if part:
                target[topic] = part
        out[member_id] = target
        yield
    return out
