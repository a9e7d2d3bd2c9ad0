"""Static members of classic groups that rejoin (KIP-345): the old member id is fenced.

A stable group does not rebalance if it would select the same protocol.

Source: ``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects, GroupSettings
from ottla.broker.groups.records import GroupRecord
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group, offset_records


class StaticMemberReplacement(NamedTuple):
    """Context of the write that replaces a static member's id; it takes effect once the record is committed."""

    join_request: GroupRequest
    generation: int
    old_id: str
    new_id: str


def replace_static_member(
    group: ClassicGroup, call: GroupRequest, new_id: str, settings: GroupSettings, now_ms: int, fx: GroupEffects
) -> None:
    """Replace the id of a static member that rejoined without its id.

    In a stable group whose protocol stays the same, the record is written first (`on_replacement_outcome` replaces the
    id) and there is no rebalance. Else the id is replaced at once and a rebalance starts or continues.
    """
    request: join_group.JoinGroupRequest = call.request
    assert request.group_instance_id is not None
    old_id = group.static_member_ids[request.group_instance_id]
    if group.state is ClassicGroupState.STABLE and _keeps_protocol(group, group.members[old_id], request):
        fx.records.append(
            GroupRecord(
                offset_records.GroupMetadataKey(group.id), _replacement_record_value(group, request, old_id, new_id)
            )
        )
        fx.on_commit_outcome = StaticMemberReplacement(call, group.generation, old_id, new_id)
        return
    _replace_member(group, call, old_id, new_id, now_ms, fx)
    rebalance.maybe_prepare_rebalance_or_complete_join(group, settings, now_ms, fx)


def _keeps_protocol(group: ClassicGroup, member: ClassicGroupMember, request: join_group.JoinGroupRequest) -> bool:
    before = member.protocols
    group.set_protocols(member, rebalance.protocols_of(request))
    chosen = group.select_protocol()
    group.set_protocols(member, before)
    return chosen == group.protocol


def _replacement_record_value(
    group: ClassicGroup, request: join_group.JoinGroupRequest, old_id: str, new_id: str
) -> offset_records.GroupMetadataValue:
    """Return the group metadata value in which the static member has its new id and settings."""
    value = group.to_record_value()
    row = next(m for m in value.members if m.member_id == old_id)
    row.member_id = new_id
    row.session_timeout = request.session_timeout_ms
    row.rebalance_timeout = rebalance.rebalance_timeout_of(request)
    row.subscription = dict(rebalance.protocols_of(request)).get(group.protocol or "", b"")
    if value.leader == old_id:
        value.leader = new_id
    return value


def _replace_member(
    group: ClassicGroup, call: GroupRequest, old_id: str, new_id: str, now_ms: int, fx: GroupEffects
) -> ClassicGroupMember:
    """Replace a static member's id, hold its JoinGroup, and fail the old id's pending requests: FENCED_INSTANCE_ID."""
    member = group.members[old_id]
    rebalance.reject_join(group, member, ErrorCode.FENCED_INSTANCE_ID, old_id, fx)
    rebalance.reject_sync(member, ErrorCode.FENCED_INSTANCE_ID, fx)
    rebalance.cancel_session(group, old_id, fx)
    group.replace_static_member(old_id, new_id)
    rebalance.update_member_and_hold_join(group, member, call, fx)
    rebalance.arm_session(group, member, now_ms, fx)
    return member


def on_replacement_outcome(
    group: ClassicGroup | None, replacement: StaticMemberReplacement, error: ErrorCode, now_ms: int
) -> GroupEffects | None:
    """Complete the replacement of a static member's id once its record is committed, or reply with the write error.

    Returns:
        None if the group has changed meanwhile: the caller then handles the request as an ordinary join.
    """
    call = replacement.join_request
    member = group.members.get(replacement.old_id) if group is not None else None
    if error is not ErrorCode.NONE:
        reply = rebalance.join_error(error, "", call.version)
        if group is not None and member is not None:
            reply = rebalance.build_join_response(group, member, members=False)
            reply.error_code, reply.member_id = error, ""
        return GroupEffects(replies=[RequestReply(call.pending_request, reply)])
    if (
        group is None
        or member is None
        or (group.state, group.generation) != (ClassicGroupState.STABLE, replacement.generation)
    ):
        return None
    fx = GroupEffects()
    old_leader = group.leader
    _replace_member(group, call, replacement.old_id, replacement.new_id, now_ms, fx)
    leads = call.version >= 9 and group.leader == member.id
    reply = rebalance.build_join_response(
        group, member, members=leads, leader=group.leader if call.version >= 9 else old_leader
    )
    reply.skip_assignment = leads
    rebalance.reply_join(group, member, reply, fx)
    return fx
