"""State of groups with a target assignment (consumer, share, streams), and updates of a group in time slices.

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
"""Largest number of topic names that an update compares and counts without yielding to the event loop."""
Update = Callable[[GroupEffects], Generator[None, None, None]]
"""Update of a group: adds records, timers and replies to the `GroupEffects`, as a job."""
LEAVE_GROUP_MEMBER_EPOCH = -1
"""Member epoch of a heartbeat with which a member leaves the group."""


class AssignedGroup(Generic[M, T]):
    """State of a consumer, share or streams group, replayed from its records.

    It has members of type M and, by member id, target assignments of type T.
    """

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_computed_ms = 0
        """Time of the target assignment in ms since the epoch; 0 if unknown."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.hash_checked_epoch: int | None = None
        """Soft state: group epoch for which the metadata hash was checked; None if it must be recomputed.

        The hash is also recomputed while the group's epoch is lower: the record of the checked epoch was not written.
        """

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
        """True if the metadata hash of the group must be recomputed."""
        return self.hash_checked_epoch is None or self.epoch < self.hash_checked_epoch

    def is_assignment_due(self, interval_ms: int, now_ms: int) -> bool:
        """Return True if ``interval_ms`` (`assignment.interval.ms`) has passed since the last target assignment.

        Also True if the interval is 0 or the time of the last assignment is unknown.
        """
        return self.target_computed_ms == 0 or interval_ms == 0 or now_ms >= self.target_computed_ms + interval_ms

    def update(self, member: M) -> None:
        """Replay a member record: add the member, or replace it by its new state."""
        for _ in self.update_job(member):
            pass

    def update_job(self, member: M) -> Iterator[None]:
        """Replay a member record as `update` does, as a job that yields within a large one."""
        raise NotImplementedError

    def remove(self, member_id: str) -> None:
        """Replay the tombstone of a member: remove the member from the group."""
        raise NotImplementedError

    def assignment_epoch(self, member: M, offset: OffsetToCommit) -> int | None:
        """Return the member epoch at which the partition of ``offset`` was assigned to ``member``.

        Partitions that it still has to revoke count; None if it does not have the partition.
        """
        raise NotImplementedError

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return True if the group subscribes to, or (streams) has changelogs in, any of ``topics``."""
        raise NotImplementedError

    def finish_replay(self) -> Generator[None, None, None]:
        """Count the large subscriptions whose counting was deferred at replay, as a job."""
        yield from ()


@dataclass(frozen=True, slots=True)
class ModernGroupMember:
    """Member of a consumer or share group."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Set[str] = frozenset()

    @property
    def is_revoking(self) -> bool:
        """True if the member has partitions to revoke before its rebalance timeout: never in a share group."""
        return False


class ModernGroup(AssignedGroup[N, Assignment]):
    """State of a consumer or share group: its members subscribe to topics."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscriptions = CountedSubscriptions()

    @property
    def subscribed_topic_names(self) -> SubscriptionCounts:
        """Numbers of members and regular expressions that subscribe to each topic, by name; does deferred counting."""
        return self.subscriptions.counts

    def finish_replay(self) -> Generator[None, None, None]:
        """Count large subscriptions whose counting was deferred at replay, as a job."""
        return self.subscriptions.count_pending()

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return True if any member subscribes to any of ``topics``."""
        return not self.subscribed_topic_names.keys().isdisjoint(topics)  # iterates over the smaller set

    def count_subscription(self, old: N | None, new: N | None) -> None:
        """Adjust the topic counts for a member that joins (``old`` None), leaves (``new`` None) or resubscribes.

        A member whose subscription stays equal keeps its object, so that identity shows a change. A large subscription
        is counted later (`CountedSubscriptions.adjust`); regular expressions are not counted here.
        """
        if old is None or new is None or old.subscribed_topic_names is not new.subscribed_topic_names:
            for member, by in ((old, -1), (new, 1)):
                if member is not None:
                    self.subscriptions.adjust(member.subscribed_topic_names, by_name=by)

    def shared_subscription(self, member: N, names: Set[str]) -> Generator[None, None, Set[str]]:
        """Return the group's object for a subscription equal to ``names``, or ``names`` if there is none.

        A small subscription is compared with that of ``member`` only, a large one with those of all members. Yield
        between two steps.
        """
        if not isinstance(names, JavaSortedStrings):
            return member.subscribed_topic_names if names == member.subscribed_topic_names else names
        for other in (member, *self.members.values()):
            if (yield from names.equals_job(other.subscribed_topic_names)):
                return other.subscribed_topic_names
        return names

    def subscribed_topics_after(self, old: N, new: N | None) -> Generator[None, None, SubscriptionCounts]:
        """Return a copy of the topic counts with a member's change or (``new`` None) removal, as a job.

        Only its subscription by name is adjusted, not that by regular expression.
        """
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
    """Run an update of a group after computing unknown topic hashes; as a continuation of ``fx`` if it takes long.

    Args:
        groups: groups of the type by id, in which the group is looked up after a continuation, to finish its counting.
        group_id: id of the group.
        topics: cache of the topic hashes.
        names: topics that the update reads, in several collections; iterated more than once.
        fx: effects to which the update is applied.
        update: the update.
    """
    cold = topics.unhashed(*names)

    def hash_and_update(rest: GroupEffects) -> Generator[None, None, None]:
        yield from topics.topic_hashes_job(cold)
        yield from update(rest)

    run_update(fx, hash_and_update, is_long=bool(cold) or sum(map(len, names)) > MAX_NAMES_AT_ONCE)
    if fx.continuation is not None:
        fx.continuation = chain(fx.continuation, finish_replay_job(groups, group_id))


def finish_replay_job(groups: Mapping[str, ModernGroup[Any]], group_id: str) -> Iterator[None]:
    """Do the deferred counting (`AssignedGroup.finish_replay`) of a group, as a job; nothing if it does not exist."""
    group = groups.get(group_id)
    if group is not None:
        yield from group.finish_replay()


def run_update(fx: GroupEffects, update: Update, *, is_long: bool) -> None:
    """Run an update at once or, if ``is_long``, add it to ``fx`` as a continuation.

    The continuation takes over the records of ``fx`` and writes them, with those of the update, when it has finished.
    """
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
