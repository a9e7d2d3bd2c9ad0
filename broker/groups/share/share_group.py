"""State of a share group, replayed from its records: members, epochs, targets, and partitions with share state.

Source: ``ShareGroup.java``, ``ShareGroupMember.java``, ``ModernGroup.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.modern_group import ModernGroup, ModernGroupMember


@dataclass(frozen=True, slots=True)
class ShareGroupMember(ModernGroupMember):
    """Member of a share group. It is assigned its target at once, without waiting for revocations by other members."""

    assigned: Assignment = field(default_factory=dict)


class NamedTopicPartitions(NamedTuple):
    """Partitions of a topic, with the topic name; the key of a map of these is the topic id."""

    name: str
    partitions: frozenset[int]


NamedPartitionsById = Mapping[bytes, NamedTopicPartitions]
"""Topic names and partitions by topic id."""


class ShareGroup(ModernGroup[ShareGroupMember]):
    """State of a share group. Its members change only by replay (`update_job`, `remove`)."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.initializing: dict[bytes, NamedTopicPartitions] = {}
        self.initialized: dict[bytes, NamedTopicPartitions] = {}
        self.deleting: dict[bytes, str] = {}
        self.state_deletion_started_ms: int | None = None
        """Soft state: wall clock (ms) at which the persister was asked to delete the group's state; None if it was not.
        """

    def update_job(self, member: ShareGroupMember) -> Iterator[None]:
        """Replay a record of a member: add the member, or replace it by its new state, as a job."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        self.count_subscription(old, member)
        yield

    def remove(self, member_id: str) -> None:
        """Replay the tombstone of a member: remove the member from the group."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self.count_subscription(old, None)

    @property
    def state(self) -> str:
        """State of the group as in ShareGroupDescribe: Empty or Stable."""
        return "Stable" if self.members else "Empty"

    @property
    def has_unassigned_partitions(self) -> bool:
        """True if, for a subscribed topic, the members' targets together are not exactly its initialized partitions.

        False without members.
        """
        if not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic, partitions in target.items():
                assigned.setdefault(topic, set()).update(partitions)
        return any(
            ready.name in self.subscribed_topic_names and assigned.get(topic, set()) != set(ready.partitions)
            for topic, ready in self.initialized.items()
        )


def merge_partitions(some: NamedPartitionsById, more: NamedPartitionsById) -> dict[bytes, NamedTopicPartitions]:
    """Return the union of the partitions by topic id; a topic's name is taken from ``more``."""
    out = dict(some)
    for topic, named in more.items():
        old = out.get(topic)
        out[topic] = NamedTopicPartitions(
            named.name, named.partitions | (old.partitions if old is not None else frozenset())
        )
    return out


def subtract_partitions(
    some: NamedPartitionsById, less: Mapping[bytes, frozenset[int]]
) -> dict[bytes, NamedTopicPartitions]:
    """Return ``some`` without the partitions ``less``; topics without remaining partitions are omitted."""
    out = {
        topic: named._replace(partitions=named.partitions - less.get(topic, frozenset()))
        for topic, named in some.items()
    }
    return {topic: named for topic, named in out.items() if named.partitions}
