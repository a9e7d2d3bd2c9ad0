"""A share group as its records say it is: members, epochs, targets, and which partitions have a state to share.

Source: ``ShareGroup.java``, ``ShareGroupMember.java``, ``ModernGroup.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.modern_group import ModernGroup
from ottla.broker.groups.subscription_counts import adjust_counts

LEAVE_GROUP_MEMBER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """One member. It has what it is to have at once: nobody must give anything up for it first."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)


class NamedTopicPartitions(NamedTuple):
    """Partitions of a topic, and the name it had."""

    name: str
    partitions: frozenset[int]


NamedPartitionsById = Mapping[bytes, NamedTopicPartitions]
"""Partitions by topic id."""


class ShareGroup(ModernGroup[ShareGroupMember, Assignment]):
    """One group. `update` and `remove` are for the replay of its records alone."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscribed_topic_names: dict[str, int] = {}
        """How many members want a topic."""
        self.initializing: dict[bytes, NamedTopicPartitions] = {}
        self.initialized: dict[bytes, NamedTopicPartitions] = {}
        self.deleting: dict[bytes, str] = {}
        self.state_deletion_started_ms: int | None = None
        """Soft: since when the persister forgets all of it, because the group is to be deleted."""

    def update(self, member: ShareGroupMember) -> None:
        """A member is, or is now, so."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is None or old.subscribed_topic_names is not member.subscribed_topic_names:
            adjust_counts(self.subscribed_topic_names, frozenset() if old is None else old.subscribed_topic_names, -1)
            adjust_counts(self.subscribed_topic_names, member.subscribed_topic_names, 1)

    def remove(self, member_id: str) -> None:
        """A member is gone."""
        old = self.members.pop(member_id, None)
        if old is not None:
            adjust_counts(self.subscribed_topic_names, old.subscribed_topic_names, -1)

    @property
    def state(self) -> str:
        """Empty or Stable: there is nothing in between."""
        return "Stable" if self.members else "Empty"

    def subscribed_topics_after(self, old: ShareGroupMember, new: ShareGroupMember | None) -> dict[str, int]:
        """The topics that are wanted once a member has changed, or is gone."""
        names = dict(self.subscribed_topic_names)
        adjust_counts(names, self.members[old.id].subscribed_topic_names if old.id in self.members else frozenset(), -1)
        if new is not None:
            adjust_counts(names, new.subscribed_topic_names, 1)
        return names

    @property
    def has_unassigned_partitions(self) -> bool:
        """Whether partitions have got their state that are in nobody's target, or are in one and have lost it."""
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
    """Both; a topic keeps the name it has in the second."""
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
    """The first, less some partitions; topics of which none is left go."""
    out = {
        topic: named._replace(partitions=named.partitions - less.get(topic, frozenset()))
        for topic, named in some.items()
    }
    return {topic: named for topic, named in out.items() if named.partitions}
