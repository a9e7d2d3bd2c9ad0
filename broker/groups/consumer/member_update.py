"""What a member's request does to its group: a new epoch, a new target, and the member's own next step.

The same for members of both protocols; who asks says with ``on_finished`` how the member is answered.

Source: ``GroupMetadataManager.updateSubscriptionMetadata``, ``maybeUpdateTargetAssignment``, ``maybeReconcile``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from enum import Enum
from itertools import chain, repeat
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import records, target_assignment
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
)
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.reconciliation import (
    ConsumerMemberTarget,
    OwnedPartitions,
    check_member_state,
    reconcile,
)
from ottla.broker.groups.modern_group import run_in_slices, update_in_slices
from ottla.broker.groups.subscription_counts import (
    adjust_count,
    adjust_subscription_counts,
    distinct_counts_in_steps,
    is_homogeneous_subscription,
)

STEPS_PER_SLICE = 16
INITIAL_STEPS_PER_SLICE = (1, 1)
"""The first ones put all members in order."""


class RegexUpdate(Enum):
    """What became of a member's regular expression."""

    SAME = 0
    CHANGED = 1
    RESOLVED = 2
    """It is another, and what it stands for is known."""


class MemberUpdate(NamedTuple):
    """A member before its request, whether it wants other topics now, and what it says it has."""

    member: ConsumerGroupMember
    has_subscription_changed: bool
    owned: OwnedPartitions


class GroupUpdateOptions(NamedTuple):
    """Whether the group needs a new epoch in any case, the time, and how the member is answered."""

    bumps_epoch: bool
    now_ms: int
    on_finished: Callable[[ConsumerGroup, MemberUpdate, ConsumerGroupMember, GroupEffects], None]


def update_group(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    step: MemberUpdate,
    updated: ConsumerGroupMember,
    ask: GroupUpdateOptions,
    fx: GroupEffects,
) -> None:
    """Let the group follow a member's request; large groups in slices.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH; and, perhaps in a slice, UNKNOWN_SERVER_ERROR, from `compute_targets`.
    """
    check_member_state(updated, step.owned)  # before anything is written in slices
    names = []
    if ask.bumps_epoch or group.is_metadata_stale:
        names = [group.subscribed_topic_names, updated.subscribed_topic_names]

    def update(rest: GroupEffects) -> Generator[None, None, None]:
        plan: tuple[int, bool | None] = group.epoch, None
        if names:
            plan = yield from new_epoch(groups, group, step.member, updated, rest, bump=ask.bumps_epoch)
        _assign_or_reconcile(groups, group, step, updated, ask, rest, plan)

    update_in_slices(groups.groups, group.id, groups.topics, names, fx, update)


def _assign_or_reconcile(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    step: MemberUpdate,
    updated: ConsumerGroupMember,
    ask: GroupUpdateOptions,
    fx: GroupEffects,
    plan: tuple[int, bool | None],
) -> None:
    """Compute the target of an epoch where it is due, else bring the member nearer to the one there is.

    ``plan``: the epoch, and whether all members subscribe to the same topics, where that is known.
    """
    epoch, homogeneous = plan
    if group.target_epoch >= epoch or not group.is_assignment_due(
        groups.setting(group.id, "assignment.interval.ms"), ask.now_ms
    ):
        goal = group.target_epoch, group.target_for(updated.id, updated.instance_id)
        ask.on_finished(group, step, maybe_reconcile(groups, group, step, updated, goal, ask.now_ms, fx), fx)
        return
    if homogeneous is None:
        homogeneous = is_homogeneous_subscription(
            group.subscribed_regex_counts, group.subscribed_topic_names.values(), len(group.members)
        )
    name = group.preferred_assignor(step.member, updated) or groups.settings.assignors[0]
    todo = target_assignment.capture_input(group, epoch, updated, homogeneous=homogeneous, name=name)
    wanted = groups.topics.total_partitions(group.subscribed_topic_names, updated.subscribed_topic_names)
    fx.continue_with(_assign_in_slices(groups, group, step, todo, ask), todo.work_units(wanted))


def new_epoch(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    fx: GroupEffects,
    *,
    bump: bool,
) -> Generator[None, None, tuple[int, bool]]:
    """Return the group's epoch, one more where its topics or subscriptions changed, and whether all of these are equal.

    Yield between two steps.
    """
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
    epoch, metadata_hash = group.epoch, groups.topics.hash_of(names)
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        fx.records.append(records.epoch_record(group.id, epoch, metadata_hash))
    group.hash_checked_epoch = epoch
    yield
    if group.has_partition_metadata:
        fx.records.append(records.partition_metadata_tombstone(group.id))
    return epoch, is_homogeneous_subscription(regexes, (yield from distinct_counts_in_steps(names)), members)


def _assign_in_slices(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    step: MemberUpdate,
    plan: target_assignment.ConsumerAssignmentInput,
    ask: GroupUpdateOptions,
) -> Iterator[GroupEffects]:
    """Compute the targets, write them, and let the member go on."""
    work = target_assignment.compute_targets(plan, groups.topics)
    new = yield from run_in_slices(work, chain(INITIAL_STEPS_PER_SLICE, repeat(STEPS_PER_SLICE)))
    for rows in target_assignment.target_records(plan, new):
        yield GroupEffects(records=rows)
    yield GroupEffects(records=[records.target_assignment_epoch_record(plan.group_id, plan.epoch, ask.now_ms)])
    fx, goal = GroupEffects(), (plan.epoch, new[plan.updated_member.id])
    moved = maybe_reconcile(groups, group, step, plan.updated_member, goal, ask.now_ms, fx)
    yield GroupEffects()  # it may be given very much
    ask.on_finished(group, step, moved, fx)
    yield fx


def maybe_reconcile(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    step: MemberUpdate,
    updated: ConsumerGroupMember,
    goal: tuple[int, Assignment],
    now_ms: int,
    fx: GroupEffects,
) -> ConsumerGroupMember:
    """Bring the member nearer to its target, where there is anything to do for it.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH, from `reconcile`.
    """
    if not step.has_subscription_changed and updated.is_reconciled_to(goal[0]):
        return updated
    wanted = frozenset(groups.topics.ids(group.subscribed_topics(updated)))
    moved = reconcile(
        updated, ConsumerMemberTarget(*goal, wanted, step.has_subscription_changed, group.owner_epoch, step.owned)
    )
    if moved != updated:
        fx.records.append(records.current_assignment_record(group.id, moved))
        groups.watch_revocation(group.id, moved, now_ms, fx)
    return moved
