"""A group's new target: what every member is to have. Computed in steps, and written so that it may be cut off.

A large group's targets do not fit into one append. Whatever of them was written when the node dies, no partition may
stand in two targets: the next computation would leave it there. So where they are many, everybody's target is first
cut to what it keeps, then filled.

Source: ``TargetAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.named import assignor
from ottla.broker.groups.assignors.spec import NOTHING, ROWS_AN_ID, STEP, Claim, Spec, Target, Unassignable, steps
from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer.state import ConsumerGroup, Member
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.topics import Topics
from ottla.log.machine import RECORDS_PER_STEP
from ottla.wire.errors import ErrorCode, ProtocolError

MEMBERS_AT_ONCE = 100


class Plan(NamedTuple):
    """What a target is computed from, as it was when the heartbeat came. ``updated`` is the member that sent it."""

    group_id: str
    epoch: int
    members: dict[str, Member]
    target: dict[str, Target]
    topics_of: Mapping[str, frozenset[str]]
    """What each regular expression stands for."""
    updated: Member
    replaces: str | None
    """The member whose instance id the updated one has taken over."""
    homogeneous: bool
    assignor: str

    def rows(self, partitions: int) -> int:
        """About how much work it is, in members, where so many partitions are wanted."""
        return len(self.members) + sum(len(target) for target in self.target.values()) // 4 + partitions // 5


def plan(group: ConsumerGroup, epoch: int, updated: Member, *, homogeneous: bool, name: str) -> Plan:
    """Keep what the computation needs: the group goes on while it runs in slices."""
    before = group.static_ids.get(updated.instance_id) if updated.instance_id is not None else None
    return Plan(
        group.id,
        epoch,
        dict(group.members),
        dict(group.target),
        {regex: resolved.topics for regex, resolved in group.resolved.items()},
        updated,
        before if before != updated.id else None,
        homogeneous,
        name,
    )


def compute(plan: Plan, topics: Topics) -> Generator[None, None, dict[str, Target]]:
    """The new target of every member, in Kafka's order.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR: the targets so far make no sense.
    """
    spec = yield from _spec(plan, topics)
    try:
        out = yield from assignor(plan.assignor)(spec)
    except Unassignable as error:
        why = f"Failed to compute a new target assignment for epoch {plan.epoch}: {error}"
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, why) from None
    return {member_id: out.get(member_id, NOTHING) for member_id in spec.members}


def _spec(plan: Plan, topics: Topics) -> Generator[None, None, Spec]:
    known = java_order.timeline(plan.members)
    yield
    if plan.updated.id not in plan.members:
        known.append(plan.updated.id)
    order = java_order.texts([name for name in known if name != plan.replaces], most=len(known))
    yield
    ids: dict[frozenset[str], tuple[bytes, ...]] = {}
    partitions: dict[bytes, int] = {}
    claims: dict[str, Claim] = {}
    for number, member_id in enumerate(order):
        member = plan.updated if member_id == plan.updated.id else plan.members[member_id]
        resolved = plan.topics_of.get(member.regex) if member.regex else None
        names = member.names if resolved is None else member.names | resolved
        if names not in ids:
            ids[names] = tuple(topics.ids_in_order(names))
            partitions |= {topic: topics.partitions(topic) for topic in ids[names] if topic not in partitions}
            yield from steps(ROWS_AN_ID * len(ids[names]))
        had = plan.target.get(member_id)
        if member is plan.updated and plan.replaces is not None:
            had = plan.target.get(plan.replaces)
        claims[member_id] = Claim(ids[names], len(names), had or NOTHING, member.instance_id)
        if number % MEMBERS_AT_ONCE == 0 or len(names) > STEP:  # equal sets are compared name by name
            yield from steps(len(names))
    return Spec(claims, plan.homogeneous, partitions)


def differs(old: Target | None, new: Target) -> bool:
    """Whether a member's target is another than before; one that had none gets a record even for nothing."""
    if old is None:
        return True
    return old is not new and (
        old.keys() != new.keys() or any(set(old[topic]) != set(numbers) for topic, numbers in new.items())
    )


def changes(plan: Plan, new: Mapping[str, Target]) -> Iterator[list[GroupRecord]]:
    """The records that make the new target, some at a time."""
    changed = [name for name, target in new.items() if differs(plan.target.get(name), target)]
    yield from cr.slices(_changes(plan, new, changed))


def _changes(plan: Plan, new: Mapping[str, Target], changed: list[str]) -> Iterator[GroupRecord]:
    for name in changed if len(changed) > RECORDS_PER_STEP else ():
        old = plan.target.get(name, NOTHING)
        wanted = {t: frozenset(numbers) for t, numbers in new[name].items()}
        kept = {t: tuple(n for n in old[t] if n in wanted.get(t, ())) for t in old}
        if kept != old:
            yield cr.target_record(plan.group_id, name, {t: numbers for t, numbers in kept.items() if numbers})
    for name in changed:
        yield cr.target_record(plan.group_id, name, new[name])
