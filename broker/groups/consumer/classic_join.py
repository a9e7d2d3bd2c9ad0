"""JoinGroup of a member with the classic protocol to a consumer group, as a new member or to follow a new assignment.

Source: ``GroupMetadataManager.classicGroupJoinToConsumerGroup`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Set
from dataclasses import replace
from functools import partial

from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects, join_error, protocols_of, rebalance_timeout_of
from ottla.broker.groups.consumer import consumer_protocol, static_members
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, RegexUpdate
from ottla.broker.groups.consumer.downgrade import GroupDowngrade, downgrade, is_downgrade_due
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.member_change import MemberChange
from ottla.broker.groups.consumer.member_update import MemberUpdate, write_member
from ottla.broker.groups.modern_group import run_update
from ottla.broker.groups.record_arrays import read_names
from ottla.jobs.state_machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import consumer_group_records, join_group
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

MAX_BYTES_AT_ONCE = 16 * 1024
"""Bytes of the largest subscription that is decoded without yielding to the event loop."""


def join_classic_member(groups: ConsumerGroups, group: ConsumerGroup, call: GroupRequest, now_ms: int) -> GroupEffects:
    """Return the effects that add or update the member of a JoinGroup request, with the response as the reply.

    From v4 on, a dynamic member without an id is not added: it gets an id (MEMBER_ID_REQUIRED) and joins again with it.
    If a static member is the last one to change to the classic protocol, the group is converted to a classic group
    where `group.consumer.migration.policy` allows it; for a dynamic one, its former member has to leave first. A long
    subscription is processed by the continuation of the effects.

    Raises:
        ProtocolError: the error code of the JoinGroup response; raised by the continuation if there is one.
    """
    request: join_group.JoinGroupRequest = call.request
    member_id = request.member_id or call.new_member_id
    _check(groups, group, request, member_id)
    if request.group_instance_id is None and not request.member_id and call.version >= 4:
        answer = join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, call.version)
        return GroupEffects(replies=[RequestReply(call.pending_request, answer)])
    response = join_group.JoinGroupResponse()
    fx = GroupEffects(replies=[RequestReply(call.pending_request, response)])
    is_long = len(request.protocols[0].metadata) > MAX_BYTES_AT_ONCE
    run_update(fx, partial(_join, groups, group, call, member_id, response, now_ms), is_long=is_long)
    return fx


def _join(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    call: GroupRequest,
    member_id: str,
    response: join_group.JoinGroupResponse,
    now_ms: int,
    fx: GroupEffects,
) -> Generator[None, None, None]:
    """Decode the subscription (up to 300,000 topics), update member and group, and fill in ``response``, as a job.

    Raises:
        ProtocolError: the error code of the JoinGroup response, such as UNKNOWN_SERVER_ERROR for a malformed
        subscription.
    """
    request: join_group.JoinGroupRequest = call.request
    subscription, names = yield from _decode_subscription(request)
    member = _get_or_create_member(group, request, member_id, fx)
    known = group.static_member(request.group_instance_id)
    downgrades = known is not None and is_downgrade_due(groups, group, [known], replaced=True)
    names = yield from group.shared_subscription(member, names)
    updated = _updated_member(member, call, subscription, names)
    is_renamed, regex = write_member(MemberChange(groups, group, member, updated, call, now_ms), fx)
    has_changed = is_renamed or regex is not RegexUpdate.SAME
    owned = consumer_protocol.owned_partitions(subscription, groups.topics.image)
    yield
    finish = partial(_answer, groups, group, request, response, now_ms, stays=not downgrades)
    update = MemberUpdate(groups, group, member, updated, has_changed, has_changed, owned, now_ms, finish)
    if downgrades:
        yield from _downgrade(update, fx)
    else:
        update.update_group(fx)


def _check(groups: ConsumerGroups, group: ConsumerGroup, request: join_group.JoinGroupRequest, member_id: str) -> None:
    settings = groups.settings
    if not settings.allows_upgrade and not settings.allows_downgrade:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    spoken = any(group.classic_protocol_counts.get(p.name, 0) == group.classic_member_count for p in request.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not spoken:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _decode_subscription(
    request: join_group.JoinGroupRequest,
) -> Generator[None, None, tuple[ConsumerProtocolSubscription, Set[str]]]:
    """Return the subscription of a member and the set of its topics, as a job.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR: the subscription is malformed, or the member's record would be too large.
    """
    remaining_bytes = consumer_protocol.LARGEST_BYTES - sum(len(protocol.metadata) for protocol in request.protocols)
    try:
        subscription = yield from consumer_protocol.decode_subscription(request.protocols[0].metadata)
        return subscription, (yield from read_names(subscription.topics, remaining_bytes))
    except (WireError, OverflowError):
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _get_or_create_member(
    group: ConsumerGroup, request: join_group.JoinGroupRequest, member_id: str, fx: GroupEffects
) -> ConsumerGroupMember:
    if request.group_instance_id is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if request.member_id:
        return static_members.require_static_member(group, member_id, request.group_instance_id)
    forerunner = group.static_member(request.group_instance_id)
    return (
        ConsumerGroupMember(member_id)
        if forerunner is None
        else static_members.replace_member(group, forerunner, member_id, fx)
    )


def _updated_member(
    member: ConsumerGroupMember, call: GroupRequest, subscription: ConsumerProtocolSubscription, names: Set[str]
) -> ConsumerGroupMember:
    request: join_group.JoinGroupRequest = call.request
    protocols = [consumer_group_records.ClassicProtocol(name, bytes(data)) for name, data in protocols_of(request)]
    rebalance = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance == -1 else rebalance,
        subscribed_topic_names=names,
        subscribed_regex="",
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
        classic_metadata=consumer_group_records.ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def _downgrade(update: MemberUpdate, fx: GroupEffects) -> Generator[None, None, None]:
    """Add to ``fx`` the conversion to a classic group, as a job.

    It follows when the last member with the consumer protocol is static and has rejoined with the classic protocol.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: the group cannot be converted.
    """
    group, epoch, moved = update.group, update.group.epoch, update.updated
    if update.looks_at_topics:
        epoch, _ = yield from update.new_epoch(fx)
    stale = group.target_epoch < epoch
    if not stale:
        moved = update.reconcile(update.present_target, fx)
    update.on_finished(moved, fx)
    downgrade(update.groups, GroupDowngrade(group, (), moved, stale, update.now_ms), fx)


def _answer(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    request: join_group.JoinGroupRequest,
    response: join_group.JoinGroupResponse,
    now_ms: int,
    moved: ConsumerGroupMember,
    fx: GroupEffects,
    *,
    stays: bool,
) -> None:
    """Fill in the response; its generation is the member epoch. ``moved``: the reconciled member.

    If the group ``stays`` a consumer group, restart the session timeout and set the timer for SyncGroup.
    """
    assert moved.classic_metadata is not None
    response.member_id = moved.id
    response.generation_id = moved.epoch
    response.protocol_type = CONSUMER_PROTOCOL_TYPE
    response.protocol_name = moved.classic_metadata.supported_protocols[0].name
    fx.timers.append(CancelTimer(("consumer-join", group.id, moved.id)))
    groups.rejoining_members.discard((group.id, moved.id))
    if stays:
        groups.arm_session(group.id, moved, now_ms, fx)
        wait = rebalance_timeout_of(request)
        fx.timers.append(ScheduleTimer(("consumer-sync", group.id, moved.id), now_ms + wait))
