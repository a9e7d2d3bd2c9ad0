"""What a member's request does to its group: a new epoch, a new target, and the member's own next step.

The same for members of both protocols; who asks says with ``finish`` how the member is answered.

Source: ``GroupMetadataManager.updateSubscriptionMetadata``, ``maybeUpdateTargetAssignment``, ``maybeReconcile``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain, repeat
from typing import NamedTuple

from ottla.broker.groups.assignors.spec import Target
from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer import target
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.reconcile import Goal, Owned, check_state, reconcile
from ottla.broker.groups.consumer.state import ConsumerGroup, Member, count_names, is_homogeneous
from ottla.broker.groups.counting import count
from ottla.broker.groups.modern import in_turns, once_known
from ottla.broker.groups.rebalance import Fx

INTERVAL = "consumer.assignment.interval.ms"
STEPS_AT_ONCE = 16
LONG_STEPS = (1, 1)
"""The first ones put all members in order."""


class Regex(Enum):
    """What became of a member's regular expression."""

    SAME = 0
    CHANGED = 1
    RESOLVED = 2
    """It is another, and what it stands for is known."""


class Step(NamedTuple):
    """A member before its request, whether it wants other topics now, and what it says it has."""

    member: Member
    wants_other: bool
    owned: Owned


class Ask(NamedTuple):
    """Whether the group needs a new epoch in any case, the time, and how the member is answered."""

    bump: bool
    now_ms: int
    finish: Callable[[ConsumerGroup, Step, Member, Fx], None]


def change(groups: ConsumerGroups, group: ConsumerGroup, step: Step, updated: Member, ask: Ask, fx: Fx) -> None:
    """Let the group follow a member's request; large groups in slices.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH; and, perhaps in a slice, UNKNOWN_SERVER_ERROR, from `target.compute`.
    """
    check_state(updated, step.owned)  # before anything is written in slices
    looks = ask.bump or group.is_stale
    cold = groups.topics.cold(group.names.keys() | updated.names) if looks else []
    if cold:
        once_known(groups.topics, cold, fx, lambda rest: _change(groups, group, step, updated, ask, rest))
    else:
        _change(groups, group, step, updated, ask, fx)


def _change(groups: ConsumerGroups, group: ConsumerGroup, step: Step, updated: Member, ask: Ask, fx: Fx) -> None:
    epoch, homogeneous = group.epoch, None
    if ask.bump or group.is_stale:
        epoch, homogeneous = new_epoch(groups, group, step.member, updated, fx, bump=ask.bump)
    if group.target_epoch >= epoch or not group.is_time(groups.interval_ms(group.id, INTERVAL), ask.now_ms):
        goal = group.target_epoch, group.target_of(updated.id, updated.instance_id)
        ask.finish(group, step, go_on(groups, group, step, updated, goal, ask.now_ms, fx), fx)
        return
    if homogeneous is None:
        homogeneous = is_homogeneous(group.regexes, group.names, len(group.members))
    name = group.preferred_assignor(step.member, updated) or groups.settings.assignors[0]
    plan = target.plan(group, epoch, updated, homogeneous=homogeneous, name=name)
    wanted = groups.topics.size_of(group.names.keys() | updated.names)
    fx.continue_with(_assign(groups, group, step, plan, ask), plan.rows(wanted))


def new_epoch(
    groups: ConsumerGroups, group: ConsumerGroup, old: Member, new: Member, fx: Fx, *, bump: bool
) -> tuple[int, bool]:
    """The group's epoch, one more where the topics or who wants them changed; and whether all want the same."""
    names, regexes = dict(group.names), dict(group.regexes)
    if old.names is not new.names or old.id not in group.members:
        count_names(names, old.names, by_name=-1)
        count_names(names, new.names, by_name=1)
    if old.regex != new.regex:
        count(regexes, old.regex, -1)
        count(regexes, new.regex, 1)
        resolved = group.resolved.get(old.regex or "")
        if resolved is not None and group.regexes.get(old.regex or "") == 1:
            count_names(names, resolved.topics, by_regex=-1)
    members = len(group.members)
    if new.id not in group.members and group.static_member(new.instance_id) is None:
        members += 1
    epoch, metadata_hash = group.epoch, groups.topics.hash_of(names)
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        fx.records.append(cr.epoch_record(group.id, epoch, metadata_hash))
    group.fresh_epoch = epoch
    if group.has_partition_metadata:
        fx.records.append(cr.partition_metadata_tombstone(group.id))
    return epoch, is_homogeneous(regexes, names, members)


def _assign(groups: ConsumerGroups, group: ConsumerGroup, step: Step, plan: target.Plan, ask: Ask) -> Iterator[Fx]:
    """Compute the targets, write them, and let the member go on."""
    work = target.compute(plan, groups.topics)
    new = yield from in_turns(work, chain(LONG_STEPS, repeat(STEPS_AT_ONCE)))
    for rows in target.changes(plan, new):
        yield Fx(records=rows)
    yield Fx(records=[cr.target_epoch_record(plan.group_id, plan.epoch, ask.now_ms)])
    fx, goal = Fx(), (plan.epoch, new[plan.updated.id])
    moved = go_on(groups, group, step, plan.updated, goal, ask.now_ms, fx)
    yield Fx()  # it may be given very much
    ask.finish(group, step, moved, fx)
    yield fx


def go_on(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    step: Step,
    updated: Member,
    goal: tuple[int, Target],
    now_ms: int,
    fx: Fx,
) -> Member:
    """Bring the member nearer to its target, where there is anything to do for it.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH, from `reconcile`.
    """
    if not step.wants_other and updated.is_at(goal[0]):
        return updated
    wanted = frozenset(groups.topics.ids(group.subscription(updated)))
    moved = reconcile(updated, Goal(*goal, wanted, step.wants_other, group.owner_epoch, step.owned))
    if moved != updated:
        fx.records.append(cr.current_record(group.id, moved))
        groups.watch_revocation(group.id, moved, now_ms, fx)
    return moved
