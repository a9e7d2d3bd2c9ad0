"""State of a consumer group, replayed from its records: members, epochs, target assignments and derived counts.

Source: ``ModernGroup.java``, ``ConsumerGroup.java``, ``ConsumerGroupMember.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import chain
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import EMPTY_ASSIGNMENT, PARTITIONS_PER_STEP, Assignment
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.modern_group import ModernGroup, ModernGroupMember
from ottla.broker.groups.subscription_counts import adjust_count
from ottla.wire.messages.consumer_group_records import ClassicMemberMetadata

LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""Member epoch of a static member that leaves temporarily."""
PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which it was assigned."""
NO_PARTITIONS: PartitionEpochs = {}


class ConsumerMemberState(IntEnum):
    """State of a member's reconciliation; the value is that of the current assignment record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> ConsumerMemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember(ModernGroupMember):
    """Member of a consumer group; ``classic_metadata`` is None unless it uses the classic protocol.

    ``instance_id`` is None for a dynamic member, ``assignor`` for one that prefers none; ``rebalance_timeout_ms`` is -1
    before it is known. ``subscribed_regex`` is None or empty without a regular expression.
    """

    state: ConsumerMemberState = ConsumerMemberState.STABLE
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_regex: str | None = ""
    assignor: str | None = None
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)
    classic_metadata: ClassicMemberMetadata | None = None

    def has_same_metadata(self, other: ConsumerGroupMember) -> bool:
        """Return True if both have the same subscription, assignor and classic metadata objects (by identity)."""
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.classic_metadata is other.classic_metadata
            and self.subscribed_regex is other.subscribed_regex
            and self.assignor is other.assignor
        )

    @property
    def uses_classic_protocol(self) -> bool:
        """True while the member uses the classic protocol; False after its first ConsumerGroupHeartbeat."""
        return self.classic_metadata is not None

    @property
    def is_revoking(self) -> bool:
        """True if the member has partitions to revoke before its rebalance timeout."""
        return self.state is ConsumerMemberState.UNREVOKED_PARTITIONS

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if the member has reconciled the target assignment of an epoch."""
        return self.state is ConsumerMemberState.STABLE and self.epoch == epoch


class ResolvedRegularExpression(NamedTuple):
    """Topics that a regular expression matches, with metadata offset and time (ms since the epoch) of resolution."""

    topics: Set[str]
    image_offset: int
    resolved_ms: int


class RegexUpdate(Enum):
    """Effect of a request on a member's subscribed regular expression: unchanged, changed, or changed and resolved."""

    SAME = 0
    CHANGED = 1
    RESOLVED = 2
    """Changed to an expression whose matching topics are known, or to none."""


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """State of a consumer group. Its members change only by replay, and in the conversion of a classic group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.resolved_regexes: dict[str, ResolvedRegularExpression] = {}
        self.has_partition_metadata = False
        """True if a partition metadata record (type 4, written before 4.1) is still to be deleted."""
        self.static_member_ids: dict[str, str] = {}
        self.subscribed_regex_counts: dict[str, int] = {}
        self.assignor_counts: dict[str, int] = {}
        self.classic_member_count = 0
        self.classic_protocol_counts: dict[str, int] = {}
        self.owner_epochs: dict[bytes, dict[int, int]] = {}

    # ------------------------------------------------------------------ replay

    def update_job(self, member: ConsumerGroupMember) -> Iterator[None]:
        """Replay a record of a member: add the member, or replace it by its new state, as a job."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        self._adjust_counts(old, member)
        if old is not None:
            yield from self._remove_owned(old)
        yield from self._add_owned(member.assigned, member.epoch)
        yield from self._add_owned(member.revoking, member.epoch)
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.id

    def remove(self, member_id: str) -> None:
        """Replay the tombstone of a member: remove the member and its partitions' owner epochs."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._adjust_counts(old, None)
        for _ in self._remove_owned(old):
            pass
        if old.instance_id is not None and self.static_member_ids.get(old.instance_id) == member_id:
            del self.static_member_ids[old.instance_id]

    def _adjust_counts(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        if old is not None and new is not None and old.has_same_metadata(new):
            return
        self.count_subscription(old, new)
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            adjust_count(self.subscribed_regex_counts, member.subscribed_regex, by)
            adjust_count(self.assignor_counts, member.assignor, by)
            if member.classic_metadata is not None:
                self.classic_member_count += by
                for protocol in member.classic_metadata.supported_protocols:
                    adjust_count(self.classic_protocol_counts, protocol.name, by)

    def _remove_owned(self, member: ConsumerGroupMember) -> Iterator[None]:
        """Remove the owner epochs of a member's partitions, as a job, except of those that another acquired since."""
        work = 0
        for topic, partitions in chain(member.assigned.items(), member.revoking.items()):
            owners = self.owner_epochs.get(topic)
            if owners is None:
                continue
            for partition in partitions:
                work += 1
                if owners.get(partition) == member.epoch:
                    del owners[partition]
                if work >= PARTITIONS_PER_STEP:
                    work = 0
                    yield
            if not owners:
                del self.owner_epochs[topic]

    def _add_owned(self, held: PartitionEpochs, epoch: int) -> Iterator[None]:
        work = 0
        for topic, partitions in held.items():
            owners = self.owner_epochs.setdefault(topic, {})
            for partition in partitions:
                work += 1
                owners[partition] = max(epoch, owners.get(partition, epoch))
                if work >= PARTITIONS_PER_STEP:
                    work = 0
                    yield

    def set_resolved_regex(self, regex: str, resolved: ResolvedRegularExpression | None) -> None:
        """Replay a regular expression record: set the matching topics, or remove the expression (None)."""
        old = self.resolved_regexes.pop(regex, None)
        if old is not None:
            self.subscriptions.adjust(old.topics, by_regex=-1)
        if resolved is not None:
            self.resolved_regexes[regex] = resolved
            self.subscriptions.adjust(resolved.topics, by_regex=1)

    # ------------------------------------------------------------------ derived state

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member with an instance id; None if there is none."""
        member_id = None if instance_id is None else self.static_member_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner_epoch(self, topic: bytes, partition: int) -> int:
        """Return the member epoch of a partition's owner, which may still have to revoke it; -1 without an owner."""
        owners = self.owner_epochs.get(topic)
        return -1 if owners is None else owners.get(partition, -1)

    def assignment_epoch(self, member: ConsumerGroupMember, offset: OffsetToCommit) -> int | None:
        """Return the member epoch at which the partition of ``offset`` was assigned to ``member``.

        Partitions that the member still has to revoke count; None if it does not have the partition.
        """
        assigned = member.assigned.get(offset.topic_id, {}).get(offset.partition)
        return member.revoking.get(offset.topic_id, {}).get(offset.partition) if assigned is None else assigned

    def target_for(self, member_id: str, instance_id: str | None) -> Assignment:
        """Return the target assignment of a member, empty if there is none.

        With an ``instance_id``, it is that of the group's present member with the instance id, not of ``member_id``.
        """
        if instance_id is not None:
            member_id = self.static_member_ids.get(instance_id, "")
        return self.target.get(member_id, EMPTY_ASSIGNMENT)

    @property
    def state(self) -> str:
        """State of the group as in ConsumerGroupDescribe: Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        followed = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if followed else "Reconciling"

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """Return the assignor that most members prefer, of equals the first in Java's hash order; None without any.

        ``old`` and ``new``: state of a member before and after a change that is not replayed yet.
        """
        counts = dict(self.assignor_counts)
        if old is not None:
            adjust_count(counts, old.assignor, -1)
        if new is not None:
            adjust_count(counts, new.assignor, 1)
        return max(iteration_order.hash_map_order(counts), key=counts.__getitem__, default=None)

    def subscribed_topics(self, member: ConsumerGroupMember) -> Set[str]:
        """Return the topics that a member subscribes to by name or by its resolved regular expression."""
        resolved = self.resolved_regexes.get(member.subscribed_regex) if member.subscribed_regex else None
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics
