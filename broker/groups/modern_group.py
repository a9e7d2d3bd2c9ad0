"""Groups with a target assignment for each member: state, and work on it in slices.

Source: ``ModernGroup.java``, ``ModernGroupMember.java``, ``TargetAssignmentBuilder.java`` (apache/kafka 4.3.1),
KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.java_collections.iteration_order import JavaSortedStrings
from ottla.broker.groups.subscription_counts import (
    CountedSubscriptions,
    SubscriptionCounts,
    adjust_subscription_counts_job,
)
from ottla.broker.groups.topic_metadata import HASHING_WORK, GroupTopicMetadata
from ottla.wire.errors import ErrorCode, ProtocolError

M = TypeVar("M")
N = TypeVar("N", bound="ModernGroupMember")
T = TypeVar("T")
MAX_RESTORED_PER_SLICE = 200
MAX_NAMES_AT_ONCE = 4_000
"""Names of topics that are compared and counted without a pause."""
Update = Callable[[GroupEffects], Generator[None, None, None]]
"""Adds to the effects it is given; yields between two steps."""
LEAVE_GROUP_MEMBER_EPOCH = -1
"""The epoch of a heartbeat by which a member leaves."""


class AssignedGroup(Generic[M, T]):
    """A consumer, share or streams group: members M, each with a target T."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_computed_ms = 0
        """Time at which the target was computed; 0 where that is not known."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.hash_checked_epoch: int | None = None
        """Soft: up to which epoch the metadata hash is known to be right; None where it must be computed again."""

    def require_member(self, member_id: str) -> M:
        """Return the member with an id.

        Raises:
            ProtocolError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            why = f"Member {member_id} is not a member of group {self.id}."
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return member

    @property
    def is_metadata_stale(self) -> bool:
        """True if the metadata hash must be computed again."""
        return self.hash_checked_epoch is None or self.epoch < self.hash_checked_epoch

    def is_assignment_due(self, interval_ms: int, now_ms: int) -> bool:
        """Return True if the assignment interval since the last target assignment has passed."""
        return self.target_computed_ms == 0 or interval_ms == 0 or now_ms >= self.target_computed_ms + interval_ms

    def update(self, member: M) -> None:
        """Replay the state of a member."""
        for _ in self.update_job(member):
            pass

    def update_job(self, member: M) -> Iterator[None]:
        """Replay the state of a member; yield between two steps."""
        raise NotImplementedError

    def remove(self, member_id: str) -> None:
        """Replay the end of a member."""
        raise NotImplementedError

    def assignment_epoch(self, member: M, offset: OffsetToCommit) -> int | None:
        """Return the epoch since which a member has the partition of an offset; None where it does not have it."""
        raise NotImplementedError

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return whether the group reads, or stores changes in, any of these topics."""
        raise NotImplementedError

    def finish_replay(self) -> Generator[None, None, None]:
        """Do what replay has put off; yield between two steps."""
        yield from ()


@dataclass(frozen=True, slots=True)
class ModernGroupMember:
    """A member of a consumer or share group."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Set[str] = frozenset()

    @property
    def is_revoking(self) -> bool:
        """True if the member has partitions to revoke, within its rebalance timeout."""
        return False


class ModernGroup(AssignedGroup[N, Assignment]):
    """A consumer or share group: its members subscribe to topics."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscriptions = CountedSubscriptions()

    @property
    def subscribed_topic_names(self) -> SubscriptionCounts:
        """Number of members that subscribe to each topic."""
        return self.subscriptions.counts

    def finish_replay(self) -> Generator[None, None, None]:
        """Count large subscriptions that were replayed; yield between two steps."""
        return self.subscriptions.count_pending()

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return whether any member subscribes to any of these topics."""
        return not self.subscribed_topic_names.keys().isdisjoint(topics)  # costs as much as the fewer of them

    def count_subscription(self, old: N | None, new: N | None) -> None:
        """Replay a change of the topics that a member subscribes to: equal subscriptions are one object."""
        if old is None or new is None or old.subscribed_topic_names is not new.subscribed_topic_names:
            for member, by in ((old, -1), (new, 1)):
                if member is not None:
                    self.subscriptions.adjust(member.subscribed_topic_names, by_name=by)

    def shared_subscription(self, member: N, names: Set[str]) -> Generator[None, None, Set[str]]:
        """Return an existing object for these topics: that of this member, or a large one of any member.

        Yield between two steps.
        """
        if not isinstance(names, JavaSortedStrings):
            return member.subscribed_topic_names if names == member.subscribed_topic_names else names
        for other in (member, *self.members.values()):
            if (yield from names.equals_job(other.subscribed_topic_names)):
                return other.subscribed_topic_names
        return names

    def subscribed_topics_after(self, old: N, new: N | None) -> Generator[None, None, SubscriptionCounts]:
        """Return the topic counts after a member has changed or left; yield between two steps."""
        yield from self.finish_replay()
        counts = dict(self.subscribed_topic_names)
        if new is None or old.subscribed_topic_names is not new.subscribed_topic_names:
            yield from adjust_subscription_counts_job(counts, old.subscribed_topic_names, by_name=-1)
            if new is not None:
                yield from adjust_subscription_counts_job(counts, new.subscribed_topic_names, by_name=1)
        return counts


def run_update_with_hashes(
    groups: Mapping[str, ModernGroup[Any]],
    group_id: str,
    topics: GroupTopicMetadata,
    names: Iterable[Collection[str]],
    fx: GroupEffects,
    update: Update,
) -> None:
    """Run an update of a group: in slices where it takes long.

    ``names``: the topics that it looks at. Their hashes are computed first, where they are not known.
    """
    cold = topics.unhashed(*names)

    def hash_and_update(rest: GroupEffects) -> Generator[None, None, None]:
        yield from topics.topic_hashes_job(cold)
        yield from update(rest)

    run_update(fx, hash_and_update, is_long=bool(cold) or sum(map(len, names)) > MAX_NAMES_AT_ONCE)
    if fx.continuation is not None:
        fx.continuation = chain(fx.continuation, finish_replay_job(groups, group_id))


def finish_replay_job(groups: Mapping[str, ModernGroup[Any]], group_id: str) -> Iterator[None]:
    """Do what replay of the records of a group has put off: the group may be a new one."""
    group = groups.get(group_id)
    if group is not None:
        yield from group.finish_replay()


def run_update(fx: GroupEffects, update: Update, *, is_long: bool) -> None:
    """Run an update, at once or as a continuation: what ``fx`` would write is then the first of what it writes."""
    if not is_long:
        for _ in update(fx):
            pass
        return
    records, fx.records = fx.records, []

    def job() -> Iterator[GroupEffects | None]:
        rest = GroupEffects(records=records)
        yield from update(rest)
        yield from rest.flatten()

    fx.continue_with(job(), HASHING_WORK)
