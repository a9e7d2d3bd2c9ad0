"""A member of the older protocol joins a consumer group, or comes back to follow it.

Source: ``GroupMetadataManager.classicGroupJoinToConsumerGroup`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer import embedded, static
from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer.change import Ask, Regex, Step, change, go_on, new_epoch
from ottla.broker.groups.consumer.downgrade import Back, downgrade, is_due
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.state import ConsumerGroup, Member
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.state import CONSUMER, Call
from ottla.log.machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import consumer_group_records as m
from ottla.wire.messages import join_group as j
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription


def join(groups: ConsumerGroups, group: ConsumerGroup, call: Call, now_ms: int) -> Fx:
    """Take a member in, or back.

    Raises:
        ProtocolError: the member's answer.
    """
    request: j.JoinGroupRequest = call.request
    member_id = request.member_id or call.fresh_id
    _check(groups, group, request, member_id)
    if request.group_instance_id is None and not request.member_id and call.version >= 4:
        answer = rb.join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, call.version)
        return Fx(replies=[RequestReply(call.ticket, answer)])
    said = _said(request)
    response = j.JoinGroupResponse()
    fx = Fx(replies=[RequestReply(call.ticket, response)])
    member = _member(group, request, member_id, fx)
    known = group.static_member(request.group_instance_id)
    downgrades = known is not None and is_due(groups, group, [known], replaced=True)
    updated = _merged(member, call, said)
    if updated != member:
        fx.records.append(cr.member_record(group.id, updated))
    bump = updated.names != member.names
    if updated.regex or member.regex or group.regexes:
        from ottla.broker.groups.consumer.regex import update

        bump = update(groups, group, member, updated, call, now_ms, fx) is not Regex.SAME or bump

    def finish(group: ConsumerGroup, step: Step, moved: Member, fx: Fx) -> None:
        _answer(groups, group, moved, request, response, now_ms, fx, stays=not downgrades)

    step = Step(member, bump, embedded.owned(said, groups.topics.image))
    ask = Ask(bump, now_ms, finish)
    if downgrades:
        _downgrade(groups, group, step, updated, ask, fx)
    else:
        change(groups, group, step, updated, ask, fx)
    return fx


def _check(groups: ConsumerGroups, group: ConsumerGroup, request: j.JoinGroupRequest, member_id: str) -> None:
    settings = groups.settings
    if not settings.upgrades and not settings.downgrades:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    spoken = any(group.classic_protocols.get(p.name, 0) == group.classic_members for p in request.protocols)
    if request.protocol_type != CONSUMER or not spoken:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _said(request: j.JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return embedded.subscription(request.protocols[0].metadata)
    except WireError:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _member(group: ConsumerGroup, request: j.JoinGroupRequest, member_id: str, fx: Fx) -> Member:
    if request.group_instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    if request.member_id:
        return static.known_as(group, member_id, request.group_instance_id)
    forerunner = group.static_member(request.group_instance_id)
    return Member(member_id) if forerunner is None else static.replaced(group, forerunner, member_id, fx)


def _merged(member: Member, call: Call, said: ConsumerProtocolSubscription) -> Member:
    request: j.JoinGroupRequest = call.request
    protocols = [m.ClassicProtocol(name, bytes(data)) for name, data in rb.protocols_of(request)]
    rebalance = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=said.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance == -1 else rebalance,
        names=frozenset(said.topics),
        regex="",
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
        classic=m.ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def _downgrade(groups: ConsumerGroups, group: ConsumerGroup, step: Step, updated: Member, ask: Ask, fx: Fx) -> None:
    """The last member of the new protocol came back in the older one: so does the group."""
    epoch = group.epoch
    if ask.bump or group.is_stale:
        epoch, _ = new_epoch(groups, group, step.member, updated, fx, bump=ask.bump)
    stale = group.target_epoch < epoch
    moved = updated
    if not stale:
        goal = group.target_epoch, group.target_of(updated.id, updated.instance_id)
        moved = go_on(groups, group, step, updated, goal, ask.now_ms, fx)
    ask.finish(group, step, moved, fx)
    downgrade(groups, Back(group, (), moved, stale, ask.now_ms), fx)


def _answer(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    moved: Member,
    request: j.JoinGroupRequest,
    response: j.JoinGroupResponse,
    now_ms: int,
    fx: Fx,
    *,
    stays: bool,
) -> None:
    """The member's epoch is its generation; it is to ask for its assignment within its rebalance timeout."""
    assert moved.classic is not None
    response.member_id = moved.id
    response.generation_id = moved.epoch
    response.protocol_type = CONSUMER
    response.protocol_name = moved.classic.supported_protocols[0].name
    fx.timers.append(CancelTimer(("consumer-join", group.id, moved.id)))
    groups.awaited.discard((group.id, moved.id))
    if stays:
        groups.arm_session(group.id, moved, now_ms, fx)
        wait = rb.rebalance_timeout_of(request)
        fx.timers.append(ScheduleTimer(("consumer-sync", group.id, moved.id), now_ms + wait))
