"""Target assignment of a consumer group: computed in steps, and written so that a crash leaves a valid state.

A large group's target assignment does not fit into one append. Whichever part of it is written at a crash, no partition
may be in the target of two members: the next computation would retain both. So for many members all targets are first
reduced to the retained partitions, then extended.

Source: ``TargetAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Set
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import (
    EMPTY_ASSIGNMENT,
    PARTITIONS_PER_STEP,
    Assignment,
    GroupSpec,
    MemberSubscriptionAndAssignment,
    PartitionAssignorException,
)
from ottla.broker.groups.assignors.registry import assignor_by_name
from ottla.broker.groups.consumer import records
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.errors import ErrorCode, ProtocolError

MEMBERS_PER_STEP = 100


class ConsumerAssignmentInput(NamedTuple):
    """Snapshot of the group for the computation, as of the heartbeat of ``updated_member``."""

    group_id: str
    epoch: int
    members: dict[str, ConsumerGroupMember]
    target: dict[str, Assignment]
    topics_by_regex: Mapping[str, Set[str]]
    """Topics that each resolved regular expression matches."""
    updated_member: ConsumerGroupMember
    replaced_member_id: str | None
    """Static member that the updated member replaces (same instance id); None if there is none."""
    is_homogeneous: bool
    assignor: str

    def work_units(self, partitions: int) -> int:
        """Return the approximate work of the computation, in members.

        ``partitions``: number of subscribed partitions.
        """
        return len(self.members) + sum(len(target) for target in self.target.values()) // 4 + partitions // 5


def capture_input(
    group: ConsumerGroup, epoch: int, updated: ConsumerGroupMember, *, homogeneous: bool, name: str
) -> ConsumerAssignmentInput:
    """Return a snapshot of the group, which may change while the computation runs in time slices.

    ``epoch``: group epoch of the new target; ``updated``: member that sent the heartbeat; ``homogeneous``: all members
    subscribe to the same topics; ``name``: name of the assignor.
    """
    before = group.static_member_ids.get(updated.instance_id) if updated.instance_id is not None else None
    return ConsumerAssignmentInput(
        group.id,
        epoch,
        dict(group.members),
        dict(group.target),
        {regex: resolved.topics for regex, resolved in group.resolved_regexes.items()},
        updated,
        before if before != updated.id else None,
        homogeneous,
        name,
    )


def compute_targets(
    plan: ConsumerAssignmentInput, topics: GroupTopicMetadata
) -> Generator[None, None, dict[str, Assignment]]:
    """Return the new target assignment of every member, in Kafka's order, as a job.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR: the assignor is unknown, or cannot continue from the current target
            assignment.
    """
    spec = yield from _group_spec(plan, topics)
    try:
        out = yield from assignor_by_name(plan.assignor)(spec)
    except PartitionAssignorException as error:
        why = f"Failed to compute a new target assignment for epoch {plan.epoch}: {error}"
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, why) from None
    return {member_id: out.get(member_id, EMPTY_ASSIGNMENT) for member_id in spec.members}


def _group_spec(plan: ConsumerAssignmentInput, topics: GroupTopicMetadata) -> Generator[None, None, GroupSpec]:
    known = iteration_order.timeline_hash_map_order(plan.members)
    yield
    if plan.updated_member.id not in plan.members:
        known.append(plan.updated_member.id)
    order = iteration_order.hash_map_order([name for name in known if name != plan.replaced_member_id], most=len(known))
    yield
    ids: dict[Set[str], tuple[bytes, ...]] = {}
    partitions: dict[bytes, int] = {}
    claims: dict[str, MemberSubscriptionAndAssignment] = {}
    for number, member_id in enumerate(order):
        member = plan.updated_member if member_id == plan.updated_member.id else plan.members[member_id]
        resolved = plan.topics_by_regex.get(member.subscribed_regex) if member.subscribed_regex else None
        names = member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved
        if names not in ids:
            ids[names] = tuple(topics.ids_in_hash_set_order(names))
            partitions |= {topic: topics.partition_count(topic) for topic in ids[names] if topic not in partitions}
            yield
        had = plan.target.get(member_id)
        if member is plan.updated_member and plan.replaced_member_id is not None:
            had = plan.target.get(plan.replaced_member_id)
        claims[member_id] = MemberSubscriptionAndAssignment(
            ids[names], len(names), had or EMPTY_ASSIGNMENT, member.instance_id
        )
        if number % MEMBERS_PER_STEP == 0 or len(names) > PARTITIONS_PER_STEP:  # equal sets are compared name by name
            yield
    return GroupSpec(claims, plan.is_homogeneous, partitions)


def has_target_changed(old: Assignment | None, new: Assignment) -> bool:
    """Return True if a member's target changed or is new (``old`` None): a new one needs a record even if empty."""
    if old is None:
        return True
    return old is not new and (
        old.keys() != new.keys() or any(set(old[topic]) != set(numbers) for topic, numbers in new.items())
    )


def target_records(plan: ConsumerAssignmentInput, new: Mapping[str, Assignment]) -> Iterator[list[GroupRecord]]:
    """Yield the target assignment records of the changed members, in parts of one append each.

    For more than `RECORDS_PER_STEP` (500) changed members, records with only their retained partitions come first.
    """
    changed = [name for name, target in new.items() if has_target_changed(plan.target.get(name), target)]
    yield from records.slice_records(_changed_target_records(plan, new, changed))


def _changed_target_records(
    plan: ConsumerAssignmentInput, new: Mapping[str, Assignment], changed: list[str]
) -> Iterator[GroupRecord]:
    for name in changed if len(changed) > RECORDS_PER_STEP else ():
        old = plan.target.get(name, EMPTY_ASSIGNMENT)
        wanted = {t: frozenset(numbers) for t, numbers in new[name].items()}
        kept = {t: tuple(n for n in old[t] if n in wanted.get(t, ())) for t in old}
        if kept != old:
            yield records.target_assignment_record(
                plan.group_id, name, {t: numbers for t, numbers in kept.items() if numbers}
            )
    for name in changed:
        yield records.target_assignment_record(plan.group_id, name, new[name])
