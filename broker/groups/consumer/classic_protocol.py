"""Members with the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The generation of a member is its member epoch. A change of its assignment appears to it as a rebalance; SyncGroup
returns the assignment.

Source: ``GroupMetadataManager.java``, the ``classicGroup...ToConsumerGroup`` methods (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Generator
from functools import partial

from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import consumer_protocol
from ottla.broker.groups.consumer.classic_join import join_classic_member
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, ConsumerMemberState
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.member_removal import fence_members
from ottla.broker.groups.consumer.records import group_tombstones
from ottla.broker.groups.consumer.static_members import require_static_member
from ottla.broker.groups.modern_group import run_update
from ottla.jobs.state_machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import heartbeat, join_group, leave_group, sync_group

LOOKUPS_PER_STEP = 500


def handle_classic_request(groups: ConsumerGroups, call: GroupRequest, now_ms: int) -> GroupEffects:
    """Return the effects of a JoinGroup, SyncGroup, Heartbeat or LeaveGroup request to a consumer group.

    An accepted JoinGroup to a group without members replaces it by a classic group. Errors are returned in the response
    or, if a continuation of the effects fails, as a `ProtocolError` instead of it.
    """
    request, fx = call.request, GroupEffects()
    group = groups.groups[request.group_id]
    match request:
        case join_group.JoinGroupRequest() if not group.members:
            fx = groups.classic_groups.join(call, now_ms)
            if fx.records:  # accepted: a new classic group replaces this one
                fx.records[:0] = group_tombstones(group)
            return fx
        case join_group.JoinGroupRequest():
            return _join(groups, group, call, now_ms)
        case sync_group.SyncGroupRequest():
            fx.replies.append(RequestReply(call.pending_request, _sync(groups, group, request, now_ms, fx)))
        case heartbeat.HeartbeatRequest():
            code = _heartbeat(groups, group, request, now_ms, fx)
            fx.replies.append(RequestReply(call.pending_request, heartbeat.HeartbeatResponse(error_code=code)))
        case _:
            assert isinstance(request, leave_group.LeaveGroupRequest)
            return _leave(groups, group, call, now_ms)
    return fx


def _join(groups: ConsumerGroups, group: ConsumerGroup, call: GroupRequest, now_ms: int) -> GroupEffects:
    request: join_group.JoinGroupRequest = call.request
    try:
        return join_classic_member(
            groups, group, call._replace(new_member_id=_to_base64_uuid(call.new_member_id)), now_ms
        )
    except ProtocolError as error:
        return GroupEffects(
            replies=[
                RequestReply(call.pending_request, rebalance.join_error(error.code, request.member_id, call.version))
            ]
        )


def _to_base64_uuid(java_uuid: str) -> str:
    """Return a Java UUID of 36 characters in base64 (22 characters), Kafka's form of member ids in consumer groups."""
    digits = java_uuid.replace("-", "")
    return urlsafe_b64encode(bytes.fromhex(digits)).decode().rstrip("=") if len(digits) == 32 else java_uuid


def _require_classic_member(
    group: ConsumerGroup, request: heartbeat.HeartbeatRequest | sync_group.SyncGroupRequest
) -> ConsumerGroupMember:
    """Return the classic member of a request with the current generation.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if request.group_instance_id is None:
        member = group.require_member(request.member_id)
    else:
        member = require_static_member(group, request.member_id, request.group_instance_id)
    if member.classic_metadata is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != request.generation_id:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _await_join(
    groups: ConsumerGroups, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects
) -> None:
    """Add the rebalance timeout of a member that gets REBALANCE_IN_PROGRESS to ``fx``, unless it is running already."""
    if (group.id, member.id) not in groups.rejoining_members:
        groups.rejoining_members.add((group.id, member.id))
        fx.timers.append(ScheduleTimer(("consumer-join", group.id, member.id), now_ms + member.rebalance_timeout_ms))


def _sync(
    groups: ConsumerGroups, group: ConsumerGroup, request: sync_group.SyncGroupRequest, now_ms: int, fx: GroupEffects
) -> sync_group.SyncGroupResponse:
    try:
        member = _require_classic_member(group, request)
        assert member.classic_metadata is not None
        if not member.classic_metadata.supported_protocols:  # an invalid record: Kafka fails the request
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        first = member.classic_metadata.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            first.name,
        ):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
            _await_join(groups, group, member, now_ms, fx)
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
    except ProtocolError as error:
        return sync_group.SyncGroupResponse(error_code=error.code)
    try:
        version = consumer_protocol.decode_version(first.metadata)
    except WireError:  # invalid metadata of a protocol that its classic group did not select
        return sync_group.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    fx.timers.append(CancelTimer(("consumer-sync", group.id, member.id)))
    groups.arm_session(group.id, member, now_ms, fx)
    given = consumer_protocol.encode_assignment(member.assigned, groups.topics.image, version)
    return sync_group.SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=given
    )


def _heartbeat(
    groups: ConsumerGroups, group: ConsumerGroup, request: heartbeat.HeartbeatRequest, now_ms: int, fx: GroupEffects
) -> ErrorCode:
    try:
        member = _require_classic_member(group, request)
    except ProtocolError as error:
        return error.code
    groups.arm_session(group.id, member, now_ms, fx)
    if (
        member.epoch < group.target_epoch
        or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        or (member.state is ConsumerMemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
    ):
        _await_join(groups, group, member, now_ms, fx)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _waits_for_others(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return True if another member still owns at least one partition of this member's target assignment."""
    return any(
        number not in member.assigned.get(topic, ()) and group.owner_epoch(topic, number) != -1
        for topic, numbers in group.target.get(member.id, {}).items()
        for number in numbers
    )


def _leave(groups: ConsumerGroups, group: ConsumerGroup, call: GroupRequest, now_ms: int) -> GroupEffects:
    request: leave_group.LeaveGroupRequest = call.request
    members = request.members if call.version >= 3 else [leave_group.MemberIdentity(request.member_id)]
    answer = leave_group.LeaveGroupResponse()
    fx = GroupEffects(replies=[RequestReply(call.pending_request, answer)])
    leaving = partial(_leave_job, groups, group, members, answer, now_ms)
    run_update(fx, leaving, is_long=len(members) > LOOKUPS_PER_STEP)
    if call.version < 3:
        answer.error_code, answer.members = answer.members[0].error_code, []
    return fx


def _leave_job(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    members: list[leave_group.MemberIdentity],
    answer: leave_group.LeaveGroupResponse,
    now_ms: int,
    fx: GroupEffects,
) -> Generator[None, None, None]:
    """Add the result of each leaving member to the response ``answer``, and remove the existing ones, as a job.

    All are removed in one group epoch.
    """
    gone: dict[str, ConsumerGroupMember] = {}
    for number, one in enumerate(members):
        code = ErrorCode.NONE
        try:
            member = _leaving_member(group, one)
            gone[member.id] = member
        except ProtocolError as error:
            code = error.code
        answer.members.append(leave_group.MemberResponse(one.member_id, one.group_instance_id, code))
        if number % LOOKUPS_PER_STEP == 0:
            yield
    if gone:
        fence_members(groups, group, list(gone.values()), now_ms, fx)


def _leaving_member(group: ConsumerGroup, one: leave_group.MemberIdentity) -> ConsumerGroupMember:
    if one.group_instance_id is None:
        return group.require_member(one.member_id)
    member = group.static_member(one.group_instance_id)
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    return require_static_member(group, one.member_id or member.id, one.group_instance_id)
