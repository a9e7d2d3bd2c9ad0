"""Static members that come back (KIP-345): the old id is fenced, and a stable group stays as it is if it can.

Source: ``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Call, Group, GroupState, Member
from ottla.log.machine import RequestReply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group as j
from ottla.wire.messages import offset_records as o


class Replaced(NamedTuple):
    """A member has its new id once the record that names it is committed."""

    call: Call
    generation: int
    old_id: str
    new_id: str


def replace(group: Group, call: Call, new_id: str, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """A static member came back under a new id. A stable group that can go on writes that down first."""
    request: j.JoinGroupRequest = call.request
    assert request.group_instance_id is not None
    old_id = group.static_ids[request.group_instance_id]
    if group.state is GroupState.STABLE and _keeps_protocol(group, group.members[old_id], request):
        fx.records.append(GroupRecord(o.GroupMetadataKey(group.id), _stored(group, request, old_id, new_id)))
        fx.on_commit_outcome = Replaced(call, group.generation, old_id, new_id)
        return
    _rename(group, call, old_id, new_id, now_ms, fx)
    rb.rebalance(group, settings, now_ms, fx)


def _keeps_protocol(group: Group, member: Member, request: j.JoinGroupRequest) -> bool:
    before = member.protocols
    group.speak(member, rb.protocols_of(request))
    chosen = group.select_protocol()
    group.speak(member, before)
    return chosen == group.protocol


def _stored(group: Group, request: j.JoinGroupRequest, old_id: str, new_id: str) -> o.GroupMetadataValue:
    """The group's record as it will be."""
    value = group.stored()
    row = next(m for m in value.members if m.member_id == old_id)
    row.member_id = new_id
    row.session_timeout = request.session_timeout_ms
    row.rebalance_timeout = rb.rebalance_timeout_of(request)
    row.subscription = dict(rb.protocols_of(request)).get(group.protocol or "", b"")
    if value.leader == old_id:
        value.leader = new_id
    return value


def _rename(group: Group, call: Call, old_id: str, new_id: str, now_ms: int, fx: Fx) -> Member:
    """Fence whoever still waits under the old id; the new one waits in its place."""
    member = group.members[old_id]
    rb.refuse_join(group, member, ErrorCode.FENCED_INSTANCE_ID, old_id, fx)
    rb.refuse_sync(member, ErrorCode.FENCED_INSTANCE_ID, fx)
    rb.cancel_session(group, old_id, fx)
    group.rename(old_id, new_id)
    rb.rejoin(group, member, call, fx)
    rb.arm_session(group, member, now_ms, fx)
    return member


def replaced(group: Group | None, what: Replaced, error: ErrorCode, now_ms: int) -> Fx | None:
    """The record with the new id is committed, or is not: then nothing has changed.

    None where the group went on meanwhile: its next record says who is in it, and the request is a join like any.
    """
    call = what.call
    member = group.members.get(what.old_id) if group is not None else None
    if error is not ErrorCode.NONE:
        reply = rb.join_error(error, "", call.version)
        if group is not None and member is not None:
            reply = rb.joined(group, member, members=False)
            reply.error_code, reply.member_id = error, ""
        return Fx(replies=[RequestReply(call.ticket, reply)])
    if group is None or member is None or (group.state, group.generation) != (GroupState.STABLE, what.generation):
        return None
    fx = Fx()
    old_leader = group.leader
    _rename(group, call, what.old_id, what.new_id, now_ms, fx)
    leads = call.version >= 9 and group.leader == member.id
    reply = rb.joined(group, member, members=leads, leader=group.leader if call.version >= 9 else old_leader)
    reply.skip_assignment = leads
    rb.reply_join(group, member, reply, fx)
    return fx
