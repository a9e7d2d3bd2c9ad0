"""Members of the older protocol in a consumer group: they join, sync, beat and leave, and follow like the others.

A member is its own generation: its epoch. That it has something to do it hears as a rebalance; what it is to have it
gets with SyncGroup.

Source: ``GroupMetadataManager.java``, the ``classicGroup...ToConsumerGroup`` methods (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer import embedded
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.joining import join
from ottla.broker.groups.consumer.leaving import fence
from ottla.broker.groups.consumer.records import group_tombstones
from ottla.broker.groups.consumer.state import ConsumerGroup, Member, MemberState
from ottla.broker.groups.consumer.static import known_as
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.state import CONSUMER, Call
from ottla.log.machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import sync_group as s

LOOKED_FOR_AT_ONCE = 500


def handle(groups: ConsumerGroups, call: Call, now_ms: int) -> Fx:
    """One call to a group that is a consumer group."""
    request, fx = call.request, Fx()
    group = groups.groups[request.group_id]
    match request:
        case j.JoinGroupRequest() if not group.members:
            fx = groups.classic.join(call, now_ms)
            if fx.records:  # it is let in: the group begins anew, as one of the older kind
                fx.records[:0] = group_tombstones(group)
            return fx
        case j.JoinGroupRequest():
            return _join(groups, group, call, now_ms)
        case s.SyncGroupRequest():
            fx.replies.append(RequestReply(call.ticket, _synced(groups, group, request, now_ms, fx)))
        case hb.HeartbeatRequest():
            code = _beaten(groups, group, request, now_ms, fx)
            fx.replies.append(RequestReply(call.ticket, hb.HeartbeatResponse(error_code=code)))
        case _:
            assert isinstance(request, lg.LeaveGroupRequest)
            return _left(groups, group, call, now_ms)
    return fx


def _join(groups: ConsumerGroups, group: ConsumerGroup, call: Call, now_ms: int) -> Fx:
    request: j.JoinGroupRequest = call.request
    try:
        return join(groups, group, call._replace(fresh_id=_bare(call.fresh_id)), now_ms)
    except ProtocolError as error:
        return Fx(replies=[RequestReply(call.ticket, rb.join_error(error.code, request.member_id, call.version))])


def _bare(java_uuid: str) -> str:
    """An id of 22 letters, as Kafka makes them for these groups, from one of 36."""
    digits = java_uuid.replace("-", "")
    return urlsafe_b64encode(bytes.fromhex(digits)).decode().rstrip("=") if len(digits) == 32 else java_uuid


def _member(group: ConsumerGroup, request: hb.HeartbeatRequest | s.SyncGroupRequest) -> Member:
    """The member of the older protocol a request speaks for, in its generation.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if request.group_instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_as(group, request.member_id, request.group_instance_id)
    if member.classic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != request.generation_id:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _await_join(groups: ConsumerGroups, group: ConsumerGroup, member: Member, now_ms: int, fx: Fx) -> None:
    """A member was told to come back: it has its rebalance timeout for that, from the first time on."""
    if (group.id, member.id) not in groups.awaited:
        groups.awaited.add((group.id, member.id))
        fx.timers.append(ScheduleTimer(("consumer-join", group.id, member.id), now_ms + member.rebalance_timeout_ms))


def _synced(
    groups: ConsumerGroups, group: ConsumerGroup, request: s.SyncGroupRequest, now_ms: int, fx: Fx
) -> s.SyncGroupResponse:
    try:
        member = _member(group, request)
        assert member.classic is not None
        if not member.classic.supported_protocols:  # its record says so: Kafka fails the request
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        first = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, first.name):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            _await_join(groups, group, member, now_ms, fx)
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
    except ProtocolError as error:
        return s.SyncGroupResponse(error_code=error.code)
    try:
        version = embedded.version_of(first.metadata)
    except WireError:  # it has been taken over with a group that had agreed on another of its protocols
        return s.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    fx.timers.append(CancelTimer(("consumer-sync", group.id, member.id)))
    groups.arm_session(group.id, member, now_ms, fx)
    given = embedded.written(member.assigned, groups.topics.image, version)
    return s.SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=given
    )


def _beaten(
    groups: ConsumerGroups, group: ConsumerGroup, request: hb.HeartbeatRequest, now_ms: int, fx: Fx
) -> ErrorCode:
    try:
        member = _member(group, request)
    except ProtocolError as error:
        return error.code
    groups.arm_session(group.id, member, now_ms, fx)
    if (
        member.epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
    ):
        _await_join(groups, group, member, now_ms, fx)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Whether somebody else still has what this member is to get."""
    return any(
        number not in member.assigned.get(topic, ()) and group.owner_epoch(topic, number) != -1
        for topic, numbers in group.target.get(member.id, {}).items()
        for number in numbers
    )


def _left(groups: ConsumerGroups, group: ConsumerGroup, call: Call, now_ms: int) -> Fx:
    request: lg.LeaveGroupRequest = call.request
    members = request.members if call.version >= 3 else [lg.MemberIdentity(request.member_id)]
    answer = lg.LeaveGroupResponse()
    fx, gone = Fx(replies=[RequestReply(call.ticket, answer)]), dict[str, Member]()
    looks = _look_for(group, members, answer, gone)
    if len(members) > LOOKED_FOR_AT_ONCE:
        fx.continuation = _leaving(groups, group, looks, gone, now_ms)
        return fx
    for _ in looks:
        pass
    if gone:
        fence(groups, group, list(gone.values()), now_ms, fx)
    if call.version < 3:
        answer.error_code, answer.members = answer.members[0].error_code, []
    return fx


def _look_for(
    group: ConsumerGroup, members: list[lg.MemberIdentity], answer: lg.LeaveGroupResponse, gone: dict[str, Member]
) -> Iterator[None]:
    """Say of each who leaves whether it is there, some at a time; ``gone`` takes those who are."""
    for number, one in enumerate(members):
        code = ErrorCode.NONE
        try:
            member = _leaver(group, one)
            gone[member.id] = member
        except ProtocolError as error:
            code = error.code
        answer.members.append(lg.MemberResponse(one.member_id, one.group_instance_id, code))
        if number % LOOKED_FOR_AT_ONCE == 0:
            yield


def _leaving(
    groups: ConsumerGroups, group: ConsumerGroup, looks: Iterator[None], gone: dict[str, Member], now_ms: int
) -> Iterator[Fx]:
    """Very many are looked for in slices, then let go in one epoch."""
    for _ in looks:
        yield Fx()
    fx = Fx()
    if gone:
        fence(groups, group, list(gone.values()), now_ms, fx)
    yield from fx.flatten()


def _leaver(group: ConsumerGroup, one: lg.MemberIdentity) -> Member:
    if one.group_instance_id is None:
        return group.member(one.member_id)
    member = group.static_member(one.group_instance_id)
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    return known_as(group, one.member_id or member.id, one.group_instance_id)
