"""Static members of consumer groups: lookup, and replacement by a joining member, which inherits the assignment.

Source: ``GroupMetadataManager.getOrMaybeSubscribeStaticConsumerGroupMember``, ``replaceMember`` (apache/kafka 4.3.1),
KIP-345, KIP-848.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import records
from ottla.broker.groups.consumer.consumer_group import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
)
from ottla.broker.groups.consumer.member_epochs import check_epoch
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def require_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Return the static member with an instance id; its member id must be ``member_id``.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID (no such instance id), FENCED_INSTANCE_ID (another member id).
    """
    member = group.static_member(instance_id)
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        why = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID, why)
    return member


def get_or_replace_static_member(
    group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, fx: GroupEffects
) -> ConsumerGroupMember:
    """Return the static member of a ConsumerGroupHeartbeat; for an unknown instance id that joins, a new member.

    A new member is not added to the group here; if a member has its member id already, that one is returned. A member
    that joins replaces the one that has left temporarily or is classic: see `replace_member`.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID.
    """
    assert request.instance_id is not None
    if request.member_epoch != 0:
        member = require_static_member(group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return member
    forerunner = group.static_member(request.instance_id)
    if forerunner is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if forerunner.classic_metadata is None and forerunner.epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        why = (
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {forerunner.id} member."
        )
        raise ProtocolError(ErrorCode.UNRELEASED_INSTANCE_ID, why)
    return replace_member(group, forerunner, member_id, fx)


def replace_member(
    group: ConsumerGroup, old: ConsumerGroupMember, member_id: str, fx: GroupEffects
) -> ConsumerGroupMember:
    """Return a copy of ``old`` with another member id and epoch 0; add to ``fx`` the records that replace ``old``.

    The new member has the same target and current assignment.
    """
    new = replace(old, id=member_id, epoch=0, previous_epoch=0)
    fx.records += records.member_tombstones(group.id, old.id)
    fx.records += [
        records.member_record(group.id, new),
        records.target_assignment_record(group.id, member_id, group.target.get(old.id, {})),
        records.current_assignment_record(group.id, new),
    ]
    return new
