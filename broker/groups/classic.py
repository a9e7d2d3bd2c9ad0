"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers between them, as one pure machine.

Source: ``GroupMetadataManager.java``, the ``classicGroup...`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.groups.state import Call, Group, GroupState, Member
from ottla.log.machine import Arm, Cancel, Reply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import offset_records as o
from ottla.wire.messages import sync_group as s


class ClassicGroups:
    """The classic groups of one partition of `__consumer_offsets`."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.stored: dict[str, o.GroupMetadataValue] = {}
        """Hard state: each group's last record."""
        self.groups: dict[str, Group] = {}
        """Soft state."""

    def replay(self, key: o.GroupMetadataKey, value: o.GroupMetadataValue | None) -> None:
        """Take in a group's record."""
        if value is None:
            self.stored.pop(key.group, None)
            self.groups.pop(key.group, None)
        else:
            self.stored[key.group] = value

    def loaded(self, now_ms: int) -> Fx:
        """The shard has been read: groups stand as their records say, and each member has a session to come back in."""
        fx = Fx()
        for group_id, value in self.stored.items():
            group = self.groups[group_id] = Group.restored(group_id, value)
            for member in group.members.values():
                rb.arm_session(group, member, now_ms, fx)
        return fx

    # ------------------------------------------------------------------ join

    def join(self, call: Call, now_ms: int) -> Fx:
        """Somebody wants in, or back in."""
        fx = Fx()
        request: j.JoinGroupRequest = call.request
        try:
            self._join(call, request, now_ms, fx)
        except ProtocolError as error:
            fx.replies.append(Reply(call.ticket, rb.join_error(error.code, request.member_id, call.version)))
        return fx

    def _join(self, call: Call, request: j.JoinGroupRequest, now_ms: int, fx: Fx) -> None:
        settings = self.settings
        if not request.group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self.groups[request.group_id] = Group(request.group_id, state_since_ms=now_ms)
            rb.store(group, fx)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            self._join_new(group, call, request, now_ms, fx)
        else:
            self._join_known(group, call, request, now_ms, fx)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """``group.max.size``: those inside may rejoin; others only while there is room."""
        if group.state is GroupState.PREPARING_REBALANCE and member_id in group.members:
            waiting = sum(m.join is not None for m in group.members.values())
            return group.members[member_id].join is not None or waiting < self.settings.max_size
        if member_id in group.members or member_id in group.pending:
            return True
        return len(group.members) < self.settings.max_size

    def _join_new(self, group: Group, call: Call, request: j.JoinGroupRequest, now_ms: int, fx: Fx) -> None:
        instance = request.group_instance_id
        new_id = f"{call.client_id if instance is None else instance}-{call.fresh_id}"
        if instance is not None and instance in group.static_ids:
            self._replace_static(group, call, request, new_id, now_ms, fx)
        elif instance is None and call.version >= 4:
            group.pending[new_id] = None
            fx.timers.append(Arm(("session", group.id, new_id), now_ms + request.session_timeout_ms))
            fx.replies.append(Reply(call.ticket, rb.join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id, call.version)))
        else:
            self._add(group, call, request, new_id, now_ms, fx)

    def _join_known(self, group: Group, call: Call, request: j.JoinGroupRequest, now_ms: int, fx: Fx) -> None:
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(group, call, request, request.member_id, now_ms, fx)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        same = member.matches([(p.name, p.metadata) for p in request.protocols])
        state = group.state
        if state is GroupState.EMPTY or state is GroupState.DEAD:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if state is GroupState.COMPLETING_REBALANCE and same:
            # Its answer got lost: give it the generation it is in.
            reply = rb.joined(group, member, members=member.id == group.leader)
            fx.replies.append(Reply(call.ticket, reply))
        elif state is GroupState.STABLE and same and member.id != group.leader:
            fx.replies.append(Reply(call.ticket, rb.joined(group, member, members=False)))
        else:
            self._rejoin(group, member, call, request)
            rb.rebalance(group, self.settings, now_ms, fx)

    def _rejoin(self, group: Group, member: Member, call: Call, request: j.JoinGroupRequest) -> None:
        """Take over what a member says of itself now, and hold its request."""
        member.protocols = [(p.name, p.metadata) for p in request.protocols]
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        member.join = call

    def _add(self, group: Group, call: Call, request: j.JoinGroupRequest, member_id: str, now_ms: int, fx: Fx) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            call.client_id,
            f"/{call.client_host}",
            _rebalance_timeout(request),
            request.session_timeout_ms,
            [(p.name, p.metadata) for p in request.protocols],
            join=call,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.initial_left_ms is not None:
            group.new_member_added = True
        rb.arm_session(group, member, now_ms, fx)
        rb.rebalance(group, self.settings, now_ms, fx)

    def _replace_static(
        self, group: Group, call: Call, request: j.JoinGroupRequest, new_id: str, now_ms: int, fx: Fx
    ) -> None:
        """A static member came back under a new id: the old id is fenced, and the group stays as it is if it can."""
        assert request.group_instance_id is not None
        old_id = group.static_ids[request.group_instance_id]
        old_leader, old_protocol = group.leader, group.protocol
        member = group.members[old_id]
        rb.reply_join(member, rb.join_error(ErrorCode.FENCED_INSTANCE_ID, old_id, call.version), fx)
        rb.reply_sync(member, s.SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), fx)
        rb.cancel_session(group, old_id, fx)
        group.members = {new_id if k == old_id else k: m for k, m in group.members.items()}
        group.pending_sync = {new_id if k == old_id else k: None for k in group.pending_sync}
        member.id = group.static_ids[request.group_instance_id] = new_id
        if old_leader == old_id:
            group.leader = new_id
        self._rejoin(group, member, call, request)
        rb.arm_session(group, member, now_ms, fx)
        if group.state is GroupState.STABLE and group.select_protocol() == old_protocol:
            rb.store(group, fx)
            skips = call.version >= 9
            leads = group.leader == new_id
            reply = rb.joined(
                group, member, members=leads and skips, leader=group.leader if leads and skips else old_leader
            )
            reply.skip_assignment = leads and skips
            rb.reply_join(member, reply, fx)
        else:
            rb.rebalance(group, self.settings, now_ms, fx)

    # ------------------------------------------------------------------ sync

    def sync(self, call: Call, now_ms: int) -> Fx:
        """A member asks for its assignment; the leader's request carries everybody's."""
        fx = Fx()
        try:
            self._sync(call, call.request, now_ms, fx)
        except ProtocolError as error:
            fx.replies.append(Reply(call.ticket, s.SyncGroupResponse(error_code=error.code)))
        return fx

    def _sync(self, call: Call, request: s.SyncGroupRequest, now_ms: int, fx: Fx) -> None:
        group, member = self._current(request, request.generation_id)
        if (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
            request.protocol_name is not None and request.protocol_name != group.protocol
        ):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.pop(member.id, None)
        if not group.pending_sync:
            fx.timers.append(Cancel(("sync", group.id)))
        if group.state is GroupState.STABLE:
            fx.replies.append(Reply(call.ticket, rb.synced(group, member)))
            rb.arm_session(group, member, now_ms, fx)
            return
        member.sync = call
        if member.id != group.leader:
            return
        given = {a.member_id: a.assignment for a in request.assignments}
        for one in group.members.values():
            one.assignment = given.get(one.id, b"")
        group.become(GroupState.STABLE, now_ms)
        rb.store(group, fx)
        for one in group.members.values():
            if one.sync is not None:
                rb.reply_sync(one, rb.synced(group, one), fx)
                rb.arm_session(group, one, now_ms, fx)

    def _current(self, request: Any, generation: int) -> tuple[Group, Member]:
        """The group and member a request of some generation speaks for."""
        if not request.group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.EMPTY:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group, member

    # ------------------------------------------------------------------ heartbeat, leave

    def heartbeat(self, call: Call, now_ms: int) -> Fx:
        """A member says that it lives; it learns of a rebalance here."""
        fx = Fx()
        request: hb.HeartbeatRequest = call.request
        code = ErrorCode.NONE
        try:
            group, member = self._current(request, request.generation_id)
            rb.arm_session(group, member, now_ms, fx)
            if group.state is GroupState.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except ProtocolError as error:
            code = error.code
        fx.replies.append(Reply(call.ticket, hb.HeartbeatResponse(error_code=code)))
        return fx

    def leave(self, call: Call, now_ms: int) -> Fx:
        """Members leave: one by id up to v2, several by id or instance id from v3."""
        fx = Fx()
        request: lg.LeaveGroupRequest = call.request
        wanted = request.members if call.version >= 3 else [lg.MemberIdentity(request.member_id)]
        group = self.groups.get(request.group_id)
        response = lg.LeaveGroupResponse()
        for one in wanted:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self._leave_one(group, one, now_ms, fx)
            if call.version >= 3:
                response.members.append(lg.MemberResponse(one.member_id, one.group_instance_id, code))
            else:
                response.error_code = code
        fx.replies.append(Reply(call.ticket, response))
        return fx

    def _leave_one(self, group: Group, one: lg.MemberIdentity, now_ms: int, fx: Fx) -> ErrorCode:
        member_id = one.member_id
        if not member_id and one.group_instance_id is not None:
            member_id = group.static_ids.get(one.group_instance_id, "")
        elif member_id in group.pending:
            del group.pending[member_id]
            rb.cancel_session(group, member_id, fx)
            rb.maybe_complete_join(group, now_ms, fx)
            return ErrorCode.NONE
        try:
            member = group.check_member(member_id, one.group_instance_id)
        except ProtocolError as error:
            return error.code
        rb.drop(group, member, self.settings, now_ms, fx)
        return ErrorCode.NONE

    # ------------------------------------------------------------------ timers

    def timer(self, key: tuple[str, ...], now_ms: int) -> Fx:
        """A timer's time is over."""
        fx = Fx()
        group = self.groups.get(key[1])
        if group is None:
            return fx
        if key[0] == "join":
            rb.join_timer(group, self.settings, now_ms, fx)
        elif key[0] == "sync":
            rb.sync_timer(group, self.settings, now_ms, fx)
        elif key[2] in group.pending:
            del group.pending[key[2]]
            rb.maybe_complete_join(group, now_ms, fx)
        else:
            member = group.members.get(key[2])
            if member is not None and (not member.is_waiting or member.is_new):
                rb.drop(group, member, self.settings, now_ms, fx)
        return fx


def _rebalance_timeout(request: j.JoinGroupRequest) -> int:
    """Version 0 has one timeout for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
