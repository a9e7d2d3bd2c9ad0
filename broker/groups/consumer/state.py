"""A consumer group as its records say it is: members, epochs, targets, and what is counted from them.

Source: ``ModernGroup.java``, ``ConsumerGroup.java``, ``ConsumerGroupMember.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import NOTHING, Target
from ottla.broker.groups.counting import count
from ottla.broker.groups.modern import ModernGroup
from ottla.wire.messages.consumer_group_records import ClassicMemberMetadata

LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""The epoch of a static member that will be back."""
Held = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch it was assigned in."""
NONE_HELD: Held = {}


class MemberState(IntEnum):
    """How far a member has followed; the value stands in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    """One member. ``classic`` is there for one that speaks the older protocol."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    def says_as(self, other: Member) -> bool:
        """Whether both are of one record of type 5, which they share: only what they have may be another."""
        return (
            self.names is other.names
            and self.classic is other.classic
            and self.regex is other.regex
            and self.assignor is other.assignor
        )

    def is_at(self, epoch: int) -> bool:
        """Whether the member has nothing left to do for the target of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


class Resolved(NamedTuple):
    """The topics a regular expression stood for, as of an image's offset and a time (ms since 1970)."""

    topics: frozenset[str]
    version: int
    at_ms: int


class Subscribers(NamedTuple):
    """How many members, and how many regular expressions, name a topic."""

    by_name: int = 0
    by_regex: int = 0


Names = dict[str, Subscribers]


def count_names(names: Names, topics: Set[str], by_name: int = 0, by_regex: int = 0) -> None:
    """Count topics up or down; those nobody names any more go. A member may name 200,000: equal counts are one object,
    and what is new is taken in at once.
    """
    known = names.keys() & topics
    moved: dict[Subscribers, Subscribers] = {}
    for topic in known:
        old = names[topic]
        new = moved.get(old)
        if new is None:
            new = moved[old] = Subscribers(old.by_name + by_name, old.by_regex + by_regex)
        if new.by_name <= 0 and new.by_regex <= 0:
            del names[topic]
        else:
            names[topic] = new
    if by_name > 0 or by_regex > 0:
        names.update(dict.fromkeys(topics - known if known else topics, Subscribers(by_name, by_regex)))


class ConsumerGroup(ModernGroup[Member, Target]):
    """One group. `update` and `remove` are for the replay of its records alone."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.resolved: dict[str, Resolved] = {}
        self.has_partition_metadata = False
        """Whether a record of type 4, of before 4.1, is still to be taken away."""
        self.static_ids: dict[str, str] = {}
        self.names: Names = {}
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        self.owner_epochs: dict[bytes, dict[int, int]] = {}

    # ------------------------------------------------------------------ replay

    def update(self, member: Member) -> None:
        """A member is like this now."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        self._count(old, member)
        if old is not None:
            self._release(old)
        self._own(member.assigned, member.epoch)
        self._own(member.revoking, member.epoch)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def remove(self, member_id: str) -> None:
        """A member is gone."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._count(old, None)
        self._release(old)
        if old.instance_id is not None and self.static_ids.get(old.instance_id) == member_id:
            del self.static_ids[old.instance_id]

    def _count(self, old: Member | None, new: Member | None) -> None:
        if old is not None and new is not None and old.says_as(new):
            return
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            count_names(self.names, member.names, by_name=by)
            count(self.regexes, member.regex, by)
            count(self.assignors, member.assignor, by)
            if member.classic is not None:
                self.classic_members += by
                for protocol in member.classic.supported_protocols:
                    count(self.classic_protocols, protocol.name, by)

    def _release(self, member: Member) -> None:
        """What a member held is free, but for what somebody else has taken over since."""
        for held in (member.assigned, member.revoking):
            for topic, partitions in held.items():
                owners = self.owner_epochs.get(topic)
                if owners is None:
                    continue
                for partition in partitions:
                    if owners.get(partition) == member.epoch:
                        del owners[partition]
                if not owners:
                    del self.owner_epochs[topic]

    def _own(self, held: Held, epoch: int) -> None:
        for topic, partitions in held.items():
            owners = self.owner_epochs.setdefault(topic, {})
            for partition in partitions:
                owners[partition] = max(epoch, owners.get(partition, epoch))

    def resolve(self, regex: str, resolved: Resolved | None) -> None:
        """A regular expression stands for these topics now, or is not needed any more."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            count_names(self.names, old.topics, by_regex=-1)
        if resolved is not None:
            self.resolved[regex] = resolved
            count_names(self.names, resolved.topics, by_regex=1)

    # ------------------------------------------------------------------ what follows from it

    def static_member(self, instance_id: str | None) -> Member | None:
        """Who goes by an instance id."""
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner_epoch(self, topic: bytes, partition: int) -> int:
        """The epoch of whoever holds a partition, or is still to give it up; -1 where nobody does."""
        owners = self.owner_epochs.get(topic)
        return -1 if owners is None else owners.get(partition, -1)

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """A member's target; who comes back under an instance id has that of its forerunner."""
        if instance_id is not None:
            member_id = self.static_ids.get(instance_id, "")
        return self.target.get(member_id, NOTHING)

    @property
    def state(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        followed = all(member.is_at(self.target_epoch) for member in self.members.values())
        return "Stable" if followed else "Reconciling"

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """The assignor most members name, of several the first in a table of Java's; None where nobody names one."""
        counts = dict(self.assignors)
        if old is not None:
            count(counts, old.assignor, -1)
        if new is not None:
            count(counts, new.assignor, 1)
        return max(java_order.texts(counts), key=counts.__getitem__, default=None)

    def subscription(self, member: Member) -> frozenset[str]:
        """The topics a member wants, by name and by what its regular expression stands for."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.names if resolved is None else member.names | resolved.topics


def is_homogeneous(regexes: Mapping[str, int], names: Names, members: int) -> bool:
    """Whether all members want the same topics, as far as that can be told by counting."""
    if not regexes:
        return all(topic.by_name == members for topic in set(names.values()))
    if next(iter(regexes.values())) != members:
        return False
    return all(topic.by_regex == 1 and topic.by_name <= 0 for topic in set(names.values()))
