"""How a classic group gets from one generation to the next.

Each step takes the group and the `Effects` it adds to. Timers: ``("join", group)`` ends a rebalance,
``("sync", group)`` ends the wait for assignments, ``("session", group, member)`` ends a member.

Source: ``GroupMetadataManager.java``, the ``classicGroup...`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Group, GroupState, Member
from ottla.log.machine import Arm, Cancel, Effects, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group as j
from ottla.wire.messages import offset_records as o
from ottla.wire.messages import sync_group as s
from ottla.wire.schema import Message

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

Fx = Effects[GroupRecord]


class GroupSettings(NamedTuple):
    """The node's settings groups live by."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_metadata_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    expiry_every_ms: int = 600_000


def store(group: Group, fx: Fx) -> None:
    """Write the group's record."""
    fx.records.append(GroupRecord(o.GroupMetadataKey(group.id), group.stored()))


def arm_session(group: Group, member: Member, now_ms: int, fx: Fx) -> None:
    """A member has been heard of: its session begins anew."""
    wait = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
    fx.timers.append(Arm(("session", group.id, member.id), now_ms + wait))


def cancel_session(group: Group, member_id: str, fx: Fx) -> None:
    """A member is gone: its session needs no end."""
    fx.timers.append(Cancel(("session", group.id, member_id)))


def join_error(code: ErrorCode, member_id: str, version: int) -> j.JoinGroupResponse:
    """A refusal of a join. Before v7 the protocol name is empty, after it null."""
    name = None if version >= 7 else ""
    return j.JoinGroupResponse(error_code=code, member_id=member_id, generation_id=-1, protocol_name=name)


def reply_join(member: Member, message: Message, fx: Fx) -> None:
    """Answer the join a member waits in."""
    if member.join is not None:
        fx.replies.append(Reply(member.join.ticket, message))
        member.join = None


def reply_sync(member: Member, message: Message, fx: Fx) -> None:
    """Answer the sync a member waits in."""
    if member.sync is not None:
        fx.replies.append(Reply(member.sync.ticket, message))
        member.sync = None


def joined(group: Group, member: Member, *, members: bool, leader: str | None = None) -> j.JoinGroupResponse:
    """The answer to a join: the current generation, and for the leader what every member said."""
    protocol = group.protocol or ""
    rows = [j.JoinGroupResponseMember(m.id, m.instance_id, m.metadata(protocol)) for m in group.members.values()]
    return j.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if leader is None else leader) or "",
        member_id=member.id,
        members=rows if members else [],
    )


def synced(group: Group, member: Member) -> s.SyncGroupResponse:
    """The answer to a sync."""
    return s.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def prepare(group: Group, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """Begin a rebalance: whoever waits for an assignment is told to come back, then all are waited for."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                reply_sync(member, s.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), fx)
                arm_session(group, member, now_ms, fx)
    fx.timers.append(Cancel(("sync", group.id)))
    group.pending_sync.clear()
    initial = group.state is GroupState.EMPTY
    group.become(GroupState.PREPARING_REBALANCE, now_ms)
    if initial and settings.initial_rebalance_delay_ms == 0:
        complete_join(group, now_ms, fx)  # without waiting for those who were promised an id
    elif initial:
        first = min(settings.initial_rebalance_delay_ms, group.rebalance_timeout_ms)
        group.initial_left_ms = max(group.rebalance_timeout_ms - first, 0)
        group.new_member_added = False
        fx.timers.append(Arm(("join", group.id), now_ms + first))
    else:
        fx.timers.append(Arm(("join", group.id), now_ms + group.rebalance_timeout_ms))
        maybe_complete_join(group, now_ms, fx)


def rebalance(group: Group, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """Something changed: begin a rebalance, or see whether the one under way can end."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY):
        prepare(group, settings, now_ms, fx)
    else:
        maybe_complete_join(group, now_ms, fx)


def maybe_complete_join(group: Group, now_ms: int, fx: Fx) -> None:
    """End the join phase early when everybody is there; never during the initial delay."""
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_left_ms is None and group.all_joined:
        complete_join(group, now_ms, fx)


def join_timer(group: Group, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """The join phase's time is over; the initial delay is extended while members still come."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    left = group.initial_left_ms or 0
    if left > 0 and group.new_member_added:
        group.new_member_added = False
        step = min(settings.initial_rebalance_delay_ms, left)
        group.initial_left_ms = max(left - step, 0)
        fx.timers.append(Arm(("join", group.id), now_ms + step))
        return
    complete_join(group, now_ms, fx)


def complete_join(group: Group, now_ms: int, fx: Fx) -> None:
    """The next generation begins with those who came; dynamic members who did not are dropped."""
    group.initial_left_ms = None
    fx.timers.append(Cancel(("join", group.id)))
    for member in [m for m in group.members.values() if m.join is None and m.instance_id is None]:
        cancel_session(group, member.id, fx)
        group.remove(member.id)
    if group.members and not _leader_is_back(group):
        # Only static members are left and none has rejoined: keep waiting for one to lead.
        fx.timers.append(Arm(("join", group.id), now_ms + group.rebalance_timeout_ms))
        return
    group.generation += 1
    if not group.members:
        group.protocol = None
        group.leader = None
        group.become(GroupState.EMPTY, now_ms)
        store(group, fx)
        return
    group.protocol = group.select_protocol()
    group.become(GroupState.COMPLETING_REBALANCE, now_ms)
    for member in group.members.values():
        reply_join(member, joined(group, member, members=member.id == group.leader), fx)
        member.is_new = False
        arm_session(group, member, now_ms, fx)
        group.pending_sync[member.id] = None
    fx.timers.append(Arm(("sync", group.id), now_ms + group.rebalance_timeout_ms))


def _leader_is_back(group: Group) -> bool:
    """Whether the leader has rejoined; otherwise the first member that has takes its place."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.join is not None:
        return True
    first = next((m for m in group.members.values() if m.join is not None), None)
    if first is None:
        return False
    group.leader = first.id
    return True


def sync_timer(group: Group, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """Members that did not send SyncGroup in time are dropped, and the group goes round again."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    late = list(group.pending_sync)
    for member_id in late:
        cancel_session(group, member_id, fx)
        group.remove(member_id)
    if late:
        prepare(group, settings, now_ms, fx)


def drop(group: Group, member: Member, settings: GroupSettings, now_ms: int, fx: Fx) -> None:
    """A member leaves or is given up."""
    reply_join(member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.id, 9), fx)
    reply_sync(member, s.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), fx)
    group.remove(member.id)
    cancel_session(group, member.id, fx)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(group, settings, now_ms, fx)
    elif group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, now_ms, fx)
