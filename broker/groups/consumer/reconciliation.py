"""Reconciliation of a member with its target assignment: it revokes partitions first, then is assigned the free ones.

Source: ``CurrentAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroupMember,
    ConsumerMemberState,
    PartitionEpochs,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions

OwnedPartitions = Sequence[ConsumerGroupHeartbeatRequestTopicPartitions] | None
"""Partitions that a member reports to own; None if the request has no such field."""
_NO_EPOCHS: dict[int, int] = {}


class ConsumerMemberTarget(NamedTuple):
    """Input of a reconciliation: target epoch and assignment, ids of the subscribed topics, and owners of partitions.

    ``owner_epoch`` returns the member epoch of a partition's owner, -1 without one.
    """

    epoch: int
    target: Assignment
    subscribed: frozenset[bytes]
    subscription_changed: bool
    owner_epoch: Callable[[bytes, int], int]
    owned: OwnedPartitions


def reconcile(member: ConsumerGroupMember, goal: ConsumerMemberTarget) -> ConsumerGroupMember:
    """Return the member after its next transition towards ``goal``; unchanged while it has not revoked its partitions.

    If its subscription has changed, it loses the partitions of other topics even then. ``member`` is not modified.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH: the member's state is unknown, and it may still own partitions.
    """
    match member.state:
        case ConsumerMemberState.STABLE:
            if member.epoch != goal.epoch:
                return _next_assignment(member, goal, member.epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case ConsumerMemberState.UNREVOKED_PARTITIONS:
            if _owns_any(goal.owned, member.revoking):
                return _without_unsubscribed(member, goal) if goal.subscription_changed else member
            return _next_assignment(member, goal, member.epoch)
        case ConsumerMemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(member, goal, member.epoch)
        case _:
            check_member_state(member, goal.owned)
            return _next_assignment(member, goal, goal.epoch)


def check_member_state(member: ConsumerGroupMember, owned: OwnedPartitions) -> None:
    """Check that the member's state is known, or that the member reports to own no partitions (an empty list).

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if member.state is ConsumerMemberState.UNKNOWN and (owned is None or owned):
        why = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)


def _owns_any(owned: OwnedPartitions, held: PartitionEpochs) -> bool:
    """Return True if a member reports to own any of the partitions ``held``, or reports nothing (None)."""
    if owned is None:
        return True
    return any(not held.get(row.topic_id, _NO_EPOCHS).keys().isdisjoint(row.partitions) for row in owned)


def _without_unsubscribed(member: ConsumerGroupMember, goal: ConsumerMemberTarget) -> ConsumerGroupMember:
    """Return the member without assigned partitions of unsubscribed topics; its other assigned partitions stay.

    The removed ones have to be revoked first, unless the member reports to own none of the partitions to revoke.
    """
    gone = [topic for topic in member.assigned if topic not in goal.subscribed]
    if not gone:
        return member
    assigned = {topic: held for topic, held in member.assigned.items() if topic in goal.subscribed}
    revoking = dict(member.revoking)
    for topic in gone:
        revoking[topic] = {**revoking.get(topic, _NO_EPOCHS), **member.assigned[topic]}
    moved = replace(member, previous_epoch=member.epoch, assigned=assigned)
    if _owns_any(goal.owned, revoking):
        return replace(moved, state=ConsumerMemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return moved


def _next_assignment(member: ConsumerGroupMember, goal: ConsumerMemberTarget, epoch: int) -> ConsumerGroupMember:
    """Return the member with retained, revoked and newly assigned partitions.

    While it has partitions to revoke, its member epoch is ``epoch`` and no new partition is assigned; else the epoch is
    that of the target.
    """
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    taken: dict[bytes, list[int]] = {}
    held_back = False
    for topic in {**goal.target, **member.assigned}:
        wanted = dict.fromkeys(goal.target.get(topic, ()) if topic in goal.subscribed else ())
        own = member.revoking.get(topic, _NO_EPOCHS)
        had = member.assigned.get(topic)
        if had is None:  # no assigned partitions of this topic
            free = [n for n in wanted if n in own or goal.owner_epoch(topic, n) == -1]
            held_back = held_back or len(free) < len(wanted)
            if free:
                taken[topic] = free
            continue
        stay = {number: since for number, since in had.items() if number in wanted}
        to_revoke = {number: since for number, since in had.items() if number not in wanted}
        free = [n for n in wanted if n not in had and (n in own or goal.owner_epoch(topic, n) == -1)]
        held_back = held_back or len(stay) + len(free) < len(wanted)
        for out, part in ((kept, stay), (revoking, to_revoke)):
            if part:
                out[topic] = part
        if free:
            taken[topic] = free
    if revoking and _owns_any(goal.owned, revoking):
        return replace(
            member,
            state=ConsumerMemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    for topic, numbers in taken.items():
        kept[topic] = {**kept.get(topic, _NO_EPOCHS), **dict.fromkeys(numbers, goal.epoch)}
    return replace(
        member,
        state=ConsumerMemberState.UNRELEASED_PARTITIONS if held_back else ConsumerMemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking=NO_PARTITIONS,
    )
