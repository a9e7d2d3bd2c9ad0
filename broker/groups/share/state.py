"""A share group as its records say it is: members, epochs, targets, and which partitions have a state to share.

Source: ``ShareGroup.java``, ``ShareGroupMember.java``, ``ModernGroup.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.groups.assignors.spec import Target
from ottla.broker.groups.counting import count_all
from ottla.broker.groups.modern import ModernGroup

LEAVING = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. It has what it is to have at once: nobody must give anything up for it first."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    assigned: Target = field(default_factory=dict)


class Named(NamedTuple):
    """Partitions of a topic, and the name it had."""

    name: str
    partitions: frozenset[int]


Ready = Mapping[bytes, Named]
"""Partitions by topic id."""


class ShareGroup(ModernGroup[ShareMember, Target]):
    """One group. `update` and `remove` are for the replay of its records alone."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.names: dict[str, int] = {}
        """How many members want a topic."""
        self.initializing: dict[bytes, Named] = {}
        self.initialized: dict[bytes, Named] = {}
        self.deleting: dict[bytes, str] = {}
        self.forgetting_ms: int | None = None
        """Soft: since when the persister forgets all of it, because the group is to be deleted."""

    def update(self, member: ShareMember) -> None:
        """A member is, or is now, so."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is None or old.names is not member.names:
            count_all(self.names, frozenset() if old is None else old.names, -1)
            count_all(self.names, member.names, 1)

    def remove(self, member_id: str) -> None:
        """A member is gone."""
        old = self.members.pop(member_id, None)
        if old is not None:
            count_all(self.names, old.names, -1)

    @property
    def state(self) -> str:
        """Empty or Stable: there is nothing in between."""
        return "Stable" if self.members else "Empty"

    def names_with(self, old: ShareMember, new: ShareMember | None) -> dict[str, int]:
        """The topics that are wanted once a member has changed, or is gone."""
        names = dict(self.names)
        count_all(names, self.members[old.id].names if old.id in self.members else frozenset(), -1)
        if new is not None:
            count_all(names, new.names, 1)
        return names

    @property
    def waits_for_more(self) -> bool:
        """Whether partitions have got their state that are in nobody's target, or are in one and have lost it."""
        if not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic, partitions in target.items():
                assigned.setdefault(topic, set()).update(partitions)
        return any(
            ready.name in self.names and assigned.get(topic, set()) != set(ready.partitions)
            for topic, ready in self.initialized.items()
        )


def joined(some: Ready, more: Ready) -> dict[bytes, Named]:
    """Both; a topic keeps the name it has in the second."""
    out = dict(some)
    for topic, named in more.items():
        old = out.get(topic)
        out[topic] = Named(named.name, named.partitions | (old.partitions if old is not None else frozenset()))
    return out


def without(some: Ready, less: Mapping[bytes, frozenset[int]]) -> dict[bytes, Named]:
    """The first, less some partitions; topics of which none is left go."""
    out = {
        topic: named._replace(partitions=named.partitions - less.get(topic, frozenset()))
        for topic, named in some.items()
    }
    return {topic: named for topic, named in out.items() if named.partitions}
