"""Update of a consumer group by a member's request: group epoch, target assignment and the member's reconciliation.

Common to members of both protocols; ``on_finished`` fills in the response of the protocol.

Source: ``GroupMetadataManager.updateSubscriptionMetadata``, ``maybeUpdateTargetAssignment``, ``maybeReconcile``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import records, target_assignment
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
    RegexUpdate,
)
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.member_change import MemberChange
from ottla.broker.groups.consumer.reconciliation import (
    ConsumerMemberTarget,
    OwnedPartitions,
    check_member_state,
    reconcile,
)
from ottla.broker.groups.modern_group import run_update_with_hashes
from ottla.broker.groups.subscription_counts import (
    adjust_count,
    adjust_subscription_counts,
    distinct_counts_job,
    is_homogeneous_subscription,
)


def write_member(change: MemberChange, fx: GroupEffects) -> tuple[bool, RegexUpdate]:
    """Add the member's metadata record to ``fx`` if it changed; process its regular expression (`update_regex`).

    Returns:
        Whether the subscribed topic names changed, and how the regular expression changed.

    Raises:
        ProtocolError: INVALID_REGULAR_EXPRESSION.
    """
    group, member, updated = change.group, change.member, change.updated
    if updated != member:
        fx.records.append(records.member_record(group.id, updated))
    is_renamed = updated.subscribed_topic_names != member.subscribed_topic_names
    if not (updated.subscribed_regex or member.subscribed_regex or group.subscribed_regex_counts):
        return is_renamed, RegexUpdate.SAME
    # lazy: 3.4 ms, 150 kB
    from ottla.broker.groups.consumer.regex_subscriptions import update_regex

    return is_renamed, update_regex(change, fx)


class MemberUpdate(NamedTuple):
    """Member before and after its request, and the update of its group."""

    groups: ConsumerGroups
    group: ConsumerGroup
    member: ConsumerGroupMember
    updated: ConsumerGroupMember
    has_subscription_changed: bool
    bumps_epoch: bool
    """True if the group epoch is bumped even if the metadata hash is unchanged."""
    owned: OwnedPartitions
    now_ms: int
    on_finished: Callable[[ConsumerGroupMember, GroupEffects], None]
    """Called with the reconciled member and the effects, to fill in the response."""

    @property
    def looks_at_topics(self) -> bool:
        """True if the metadata hash of the group must be recomputed."""
        return self.bumps_epoch or self.group.is_metadata_stale

    def update_group(self, fx: GroupEffects) -> None:
        """Bump the group epoch if the subscriptions or topics changed, assign or reconcile, and respond.

        All results are added to ``fx``; in a large group as its continuation.

        Raises:
            ProtocolError: FENCED_MEMBER_EPOCH; UNKNOWN_SERVER_ERROR, from `compute_targets`: raised by the continuation
                if there is one.
        """
        group, names = self.group, []
        check_member_state(self.updated, self.owned)  # before the first record is written
        if self.looks_at_topics:
            names = [group.subscribed_topic_names, self.updated.subscribed_topic_names]

        def update(rest: GroupEffects) -> Generator[None, None, None]:
            epoch, homogeneous = (yield from self.new_epoch(rest)) if names else (group.epoch, None)
            self._assign_or_reconcile(epoch, rest, homogeneous=homogeneous)

        run_update_with_hashes(self.groups.groups, group.id, self.groups.topics, names, fx, update)

    def new_epoch(self, fx: GroupEffects) -> Generator[None, None, tuple[int, bool]]:
        """Add the record of a new group epoch to ``fx`` if subscriptions or topics changed, as a job.

        The tombstone of an old partition metadata record (type 4) is added, too. Return the group epoch, and whether
        all members have the same subscription.
        """
        group, old, new = self.group, self.member, self.updated
        names = yield from group.subscribed_topics_after(old, new)
        regexes = dict(group.subscribed_regex_counts)
        if old.subscribed_regex != new.subscribed_regex:
            adjust_count(regexes, old.subscribed_regex, -1)
            adjust_count(regexes, new.subscribed_regex, 1)
            resolved = group.resolved_regexes.get(old.subscribed_regex or "")
            if resolved is not None and group.subscribed_regex_counts.get(old.subscribed_regex or "") == 1:
                adjust_subscription_counts(names, resolved.topics, by_regex=-1)
        members = len(group.members)
        if new.id not in group.members and group.static_member(new.instance_id) is None:
            members += 1
        epoch, metadata_hash = group.epoch, self.groups.topics.hash_of(names)
        if self.bumps_epoch or metadata_hash != group.metadata_hash:
            epoch += 1
            fx.records.append(records.epoch_record(group.id, epoch, metadata_hash))
        group.hash_checked_epoch = epoch
        yield
        if group.has_partition_metadata:
            fx.records.append(records.partition_metadata_tombstone(group.id))
        return epoch, is_homogeneous_subscription(regexes, (yield from distinct_counts_job(names)), members)

    def _assign_or_reconcile(self, epoch: int, fx: GroupEffects, *, homogeneous: bool | None) -> None:
        """Compute the target assignment of ``epoch``, or reconcile the member with the current target.

        It is computed if it is older than ``epoch`` and `consumer.assignment.interval.ms` have passed since the last.
        ``homogeneous``: whether all members subscribe to the same topics; None if it must be computed.

        Raises:
            ProtocolError: as `update_group`.
        """
        groups, group, updated = self.groups, self.group, self.updated
        if group.target_epoch >= epoch or not group.is_assignment_due(
            groups.setting(group.id, "assignment.interval.ms"), self.now_ms
        ):
            self.on_finished(self.reconcile(self.present_target, fx), fx)
            return
        if homogeneous is None:
            homogeneous = is_homogeneous_subscription(
                group.subscribed_regex_counts, group.subscribed_topic_names.values(), len(group.members)
            )
        name = group.preferred_assignor(self.member, updated) or groups.settings.assignors[0]
        plan = target_assignment.capture_input(group, epoch, updated, homogeneous=homogeneous, name=name)
        wanted = groups.topics.total_partitions(group.subscribed_topic_names, updated.subscribed_topic_names)
        fx.continue_with(self._assign(plan), plan.work_units(wanted))

    def _assign(self, plan: target_assignment.ConsumerAssignmentInput) -> Iterator[GroupEffects | None]:
        """Compute the target assignment in steps; yield its records, then the reconciled member and its response.

        Raises:
            ProtocolError: as `compute_targets` and `reconcile`.
        """
        new = yield from target_assignment.compute_targets(plan, self.groups.topics)
        for rows in target_assignment.target_records(plan, new):
            yield GroupEffects(records=rows)
        yield GroupEffects(records=[records.target_assignment_epoch_record(plan.group_id, plan.epoch, self.now_ms)])
        fx = GroupEffects()
        moved = self.reconcile((plan.epoch, new[plan.updated_member.id]), fx)
        yield None  # the assignment may be large
        self.on_finished(moved, fx)
        yield fx

    @property
    def present_target(self) -> tuple[int, Assignment]:
        """Epoch of the group's current target assignment, and the target assignment of the member."""
        return self.group.target_epoch, self.group.target_for(self.updated.id, self.updated.instance_id)

    def reconcile(self, goal: tuple[int, Assignment], fx: GroupEffects) -> ConsumerGroupMember:
        """Return the member reconciled with a target assignment (epoch, partitions); unchanged if it is so already.

        The record of a changed current assignment is added to ``fx``, and the start or end of the rebalance timeout.

        Raises:
            ProtocolError: FENCED_MEMBER_EPOCH, from `reconcile`.
        """
        groups, group, updated = self.groups, self.group, self.updated
        if not self.has_subscription_changed and updated.is_reconciled_to(goal[0]):
            return updated
        wanted = frozenset(groups.topics.ids(group.subscribed_topics(updated)))
        target = ConsumerMemberTarget(*goal, wanted, self.has_subscription_changed, group.owner_epoch, self.owned)
        moved = reconcile(updated, target)
        if moved != updated:
            fx.records.append(records.current_assignment_record(group.id, moved))
            groups.watch_revocation(group.id, moved, self.now_ms, fx)
        return moved
