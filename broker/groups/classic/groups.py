"""State machine of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers of groups and members.

A creation, an assignment and the new id of a static member in a stable group take effect when the record is committed,
in `ClassicGroups.on_write_result`; other changes at once, also that of a group which becomes empty.

Source: ``GroupMetadataManager.java``, the ``classicGroup...`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.broker.groups.classic import rebalance, static_members
from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.pending_member_ids import PendingMemberIds
from ottla.broker.groups.classic.rebalance import GroupEffects, GroupSettings, LeaderAssignment
from ottla.jobs.state_machine import RECORDS_PER_STEP, CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import join_group, leave_group, offset_records, sync_group
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

MAX_RESTORED_PER_SLICE = 200
"""Number of groups, or of members, that are restored from records in one time slice."""


class NewGroupJoin(NamedTuple):
    """Context of the write that creates a group; its JoinGroup request continues once the record is committed."""

    join_request: GroupRequest


class ClassicGroups:
    """Classic groups of one partition of `__consumer_offsets`, and their rules: most methods return effects."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.persisted_groups: dict[str, offset_records.GroupMetadataValue] = {}
        """Hard state: value of each group's last record, by group id."""
        self.groups: dict[str, ClassicGroup] = {}
        """Soft state of each group, by group id."""
        self._pending_member_ids = PendingMemberIds()
        self.is_loaded = False
        """True once the shard is loaded: records that are replayed from then on were written by this broker."""

    def replay(self, key: offset_records.GroupMetadataKey, value: offset_records.GroupMetadataValue | None) -> None:
        """Replay a record as hard state; a tombstone (None) also removes soft state, a conversion's record adds it."""
        if value is None:
            self.persisted_groups.pop(key.group, None)
            self.groups.pop(key.group, None)
            return
        self.persisted_groups[key.group] = value
        if self.is_loaded and value.members and key.group not in self.groups:
            # a consumer group was converted to a classic group
            self.groups[key.group] = ClassicGroup.from_record_value(key.group, value)

    def on_loaded(self, now_ms: int) -> GroupEffects:
        """Return effects that restore the groups after replay and start the session timeout of every member anew."""
        self.is_loaded = True
        return GroupEffects(continuation=self._restore(now_ms)) if self.persisted_groups else GroupEffects()

    def _restore(self, now_ms: int) -> Iterator[GroupEffects | None]:
        fx = GroupEffects()
        for number, (group_id, value) in enumerate(self.persisted_groups.items(), 1):
            group = ClassicGroup(group_id)
            for _ in group.restore(value):
                yield None
            self.groups[group_id] = group
            for member in group.members.values():
                rebalance.arm_session(group, member, now_ms, fx)
                if len(fx.timers) > MAX_RESTORED_PER_SLICE:
                    yield fx
                    fx = GroupEffects()
            if number % MAX_RESTORED_PER_SLICE == 0:
                yield fx
                fx = GroupEffects()
        yield fx

    def on_unloaded(self, error: ErrorCode) -> GroupEffects:
        """Return effects that complete all pending requests with ``error`` because the shard is unloaded."""
        fx = GroupEffects()
        for group in self.groups.values():
            for member in group.members.values():
                rebalance.reject_join(group, member, error, member.id, fx)
                rebalance.reject_sync(member, error, fx)
        return fx

    def on_write_result(
        self,
        write_context: NewGroupJoin | LeaderAssignment | static_members.StaticMemberReplacement,
        error: ErrorCode,
        now_ms: int,
    ) -> GroupEffects:
        """Return the effects that follow when the record of ``write_context`` is committed or failed with ``error``."""
        fx = GroupEffects()
        if isinstance(write_context, LeaderAssignment):
            group = self.groups.get(write_context.group_id)
            if group is not None:
                rebalance.on_assignment_outcome(group, write_context, error, self.settings, now_ms, fx)
            return fx
        call = write_context.join_request
        group_id: str = call.request.group_id
        if isinstance(write_context, static_members.StaticMemberReplacement):
            return static_members.on_replacement_outcome(
                self.groups.get(group_id), write_context, error, now_ms
            ) or self.join(call, now_ms)
        if error is not ErrorCode.NONE:
            fx.replies.append(RequestReply(call.pending_request, rebalance.join_error(error, "", call.version)))
            return fx
        self.groups.setdefault(group_id, ClassicGroup(group_id, state_since_ms=now_ms))
        return self.join(call, now_ms)

    def on_disconnect(self, group_id: str, pending: object, now_ms: int) -> GroupEffects:
        """Return the effects of a disconnection during a request: the member remains and may rejoin, as in Kafka.

        A new dynamic member that joined before v4 never received its id and is removed; Kafka waits five minutes.
        """
        fx = GroupEffects()
        group = self.groups.get(group_id)
        for member in group.members.values() if group is not None else ():
            join = member.awaiting_join
            if join is not None and join.pending_request is pending:
                assert group is not None
                if member.is_new and member.instance_id is None and not join.request.member_id:
                    rebalance.remove_member(group, member, fx)
                    rebalance.maybe_complete_join(group, now_ms, fx)
                break
        return fx

    # ------------------------------------------------------------------ join

    def join(self, call: GroupRequest, now_ms: int) -> GroupEffects:
        """Reply to a JoinGroup with an error or the generation, hold it for the next, or first create the group."""
        fx = GroupEffects()
        request: join_group.JoinGroupRequest = call.request
        try:
            self._join(call, request, now_ms, fx)
        except ProtocolError as error:
            full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            fx.replies.append(
                RequestReply(
                    call.pending_request,
                    rebalance.join_error(error.code, "" if full else request.member_id, call.version),
                )
            )
        return fx

    def _join(self, call: GroupRequest, request: join_group.JoinGroupRequest, now_ms: int, fx: GroupEffects) -> None:
        if not request.group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            rebalance.append_group_record(ClassicGroup(request.group_id, state_since_ms=now_ms), fx)
            fx.on_commit_outcome = NewGroupJoin(call)
            return
        if not self._accepts_joining_member(group, request.member_id):
            group.remove(request.member_id)
            self._pending_member_ids.remove(group.id, request.member_id)
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports_protocols(request.protocol_type, [p.name for p in request.protocols]):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            self._join_new(group, call, request, now_ms, fx)
        else:
            self._join_known(group, call, request, now_ms, fx)

    def _accepts_joining_member(self, group: ClassicGroup, member_id: str) -> bool:
        """Return True if ``group.max.size`` allows a member to join: existing members may rejoin.

        In a rebalance pending JoinGroups are counted: in a group above the limit, the last members to join are
        rejected.
        """
        member = group.members.get(member_id)
        match group.state:
            case ClassicGroupState.EMPTY:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                return (
                    member is not None and member.awaiting_join is not None
                ) or group.awaiting_join_count < self.settings.max_size
            case _:
                return member is not None or len(group.members) < self.settings.max_size

    def _join_new(
        self,
        group: ClassicGroup,
        call: GroupRequest,
        request: join_group.JoinGroupRequest,
        now_ms: int,
        fx: GroupEffects,
    ) -> None:
        instance = request.group_instance_id
        new_id = f"{call.client_id if instance is None else instance}-{call.new_member_id}"
        if instance is not None and instance in group.static_member_ids:
            static_members.replace_static_member(group, call, new_id, self.settings, now_ms, fx)
        elif instance is None and call.version >= 4:
            group.pending_join_members[new_id] = None
            for other, member_id in self._pending_member_ids.add(group.id, new_id):
                if other in self.groups and member_id in self.groups[other].pending_join_members:
                    fx.timers.append(ScheduleTimer(("session", other, member_id), now_ms))  # expires at once
            fx.timers.append(ScheduleTimer(("session", group.id, new_id), now_ms + request.session_timeout_ms))
            fx.replies.append(
                RequestReply(
                    call.pending_request, rebalance.join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id, call.version)
                )
            )
        else:
            self._add(group, call, request, new_id, now_ms, fx)

    def _join_known(
        self,
        group: ClassicGroup,
        call: GroupRequest,
        request: join_group.JoinGroupRequest,
        now_ms: int,
        fx: GroupEffects,
    ) -> None:
        if request.member_id in group.pending_join_members:
            if request.group_instance_id is not None:
                raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka: IllegalStateException
            self._add(group, call, request, request.member_id, now_ms, fx)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        same = member.protocols == rebalance.protocols_of(request)
        state = group.state
        if state is ClassicGroupState.COMPLETING_REBALANCE and same:
            # Its JoinGroup response was lost: return the current generation.
            reply = rebalance.build_join_response(group, member, members=member.id == group.leader)
            fx.replies.append(RequestReply(call.pending_request, reply))
        elif state is ClassicGroupState.STABLE and same and member.id != group.leader:
            fx.replies.append(
                RequestReply(call.pending_request, rebalance.build_join_response(group, member, members=False))
            )
        else:
            rebalance.update_member_and_hold_join(group, member, call, fx)
            rebalance.maybe_prepare_rebalance_or_complete_join(group, self.settings, now_ms, fx)

    def _add(
        self,
        group: ClassicGroup,
        call: GroupRequest,
        request: join_group.JoinGroupRequest,
        member_id: str,
        now_ms: int,
        fx: GroupEffects,
    ) -> None:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            call.client_id,
            f"/{call.client_host}",
            rebalance.rebalance_timeout_of(request),
            request.session_timeout_ms,
            rebalance.protocols_of(request),
            awaiting_join=call,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        self._pending_member_ids.remove(group.id, member_id)
        group.new_member_added = True
        rebalance.arm_session(group, member, now_ms, fx)
        rebalance.maybe_prepare_rebalance_or_complete_join(group, self.settings, now_ms, fx)

    # ------------------------------------------------------------------ sync

    def sync(self, call: GroupRequest, now_ms: int) -> GroupEffects:
        """Reply to a SyncGroup in a stable group, or with an error; else hold it until the assignment is committed."""
        fx = GroupEffects()
        try:
            self._sync(call, call.request, fx)
        except ProtocolError as error:
            fx.replies.append(RequestReply(call.pending_request, sync_group.SyncGroupResponse(error_code=error.code)))
        return fx

    def _sync(self, call: GroupRequest, request: sync_group.SyncGroupRequest, fx: GroupEffects) -> None:
        group, member = self._require_current_member(request, request.generation_id)
        for requested, have in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        ):
            if requested is not None and have is not None and requested != have:
                raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.pop(member.id, None)
        if not group.pending_sync_members:
            fx.timers.append(CancelTimer(("sync", group.id)))
        if group.state is ClassicGroupState.STABLE:
            fx.replies.append(RequestReply(call.pending_request, rebalance.build_sync_response(group, member)))
            return
        rebalance.reject_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, fx)  # a SyncGroup pending from before fails
        member.awaiting_sync = call
        if member.id == group.leader:
            rebalance.store_leader_assignment(group, request, fx)

    def _require_current_member(self, request: Any, generation: int) -> tuple[ClassicGroup, ClassicGroupMember]:
        """Return the group and member of a request, which must have the group's current generation.

        Else raise ProtocolError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        if not request.group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        return group, member

    # ------------------------------------------------------------------ heartbeat, leave

    def heartbeat(self, call: GroupRequest, now_ms: int) -> GroupEffects:
        """Reply to a Heartbeat and restart the session timeout; REBALANCE_IN_PROGRESS during the join phase."""
        fx = GroupEffects()
        request: HeartbeatRequest = call.request
        code = ErrorCode.NONE
        try:
            group, member = self._require_current_member(request, request.generation_id)
            rebalance.arm_session(group, member, now_ms, fx)
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except ProtocolError as error:
            code = error.code
        fx.replies.append(RequestReply(call.pending_request, HeartbeatResponse(error_code=code)))
        return fx

    def leave(self, call: GroupRequest, now_ms: int) -> GroupEffects:
        """Remove the members of a LeaveGroup request: one by id up to v2, several by member or instance id from v3."""
        request: leave_group.LeaveGroupRequest = call.request
        group = self.groups.get(request.group_id)
        response = leave_group.LeaveGroupResponse()
        fx = GroupEffects(replies=[RequestReply(call.pending_request, response)])
        rows = len(request.members) + (0 if group is None else len(group.members))
        fx.continue_with(self._leaving(group, call, response, now_ms), rows)
        return fx

    def _leaving(
        self, group: ClassicGroup | None, call: GroupRequest, out: leave_group.LeaveGroupResponse, now_ms: int
    ) -> Iterator[GroupEffects | None]:
        fx = GroupEffects()
        request: leave_group.LeaveGroupRequest = call.request
        left = False
        wanted = request.members if call.version >= 3 else [leave_group.MemberIdentity(request.member_id)]
        for number, one in enumerate(wanted, 1):
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, one, fx)
            left = left or code is ErrorCode.NONE
            out.members.append(leave_group.MemberResponse(one.member_id, one.group_instance_id, code))
            if number % RECORDS_PER_STEP == 0:
                yield fx
                fx = GroupEffects()
        if call.version < 3:
            out.error_code, out.members = out.members[0].error_code, []
        if left and group is not None and group.state is not ClassicGroupState.EMPTY:
            rebalance.maybe_prepare_rebalance_or_complete_join(group, self.settings, now_ms, fx)
        yield from fx.flatten()

    def _leave_one(self, group: ClassicGroup, one: leave_group.MemberIdentity, fx: GroupEffects) -> ErrorCode:
        member_id = one.member_id
        if not member_id and one.group_instance_id is not None:
            member_id = group.static_member_ids.get(one.group_instance_id, "")
        elif member_id in group.pending_join_members:
            group.remove(member_id)
            self._pending_member_ids.remove(group.id, member_id)
            rebalance.cancel_session(group, member_id, fx)
            return ErrorCode.NONE
        try:
            member = group.check_member(member_id, one.group_instance_id)
        except ProtocolError as error:
            return error.code
        rebalance.remove_member(group, member, fx)
        return ErrorCode.NONE

    # ------------------------------------------------------------------ timers

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> GroupEffects:
        """End a join or sync phase, or remove the unused member id or (if it waits, only a new) member of a session."""
        fx = GroupEffects()
        group = self.groups.get(key[1])
        if key[0] == "session":
            # also if the group was deleted or created again since
            self._pending_member_ids.remove(key[1], key[2])
        if group is None:
            return fx
        if key[0] == "join":
            rebalance.on_join_timeout(group, self.settings, now_ms, fx)
        elif key[0] == "sync":
            rebalance.on_sync_timeout(group, self.settings, now_ms, fx)
        elif key[2] in group.pending_join_members:
            group.remove(key[2])
            rebalance.complete_join_if_all_joined(group, now_ms, fx)
        else:
            member = group.members.get(key[2])
            if member is not None and (not member.is_waiting or member.is_new):
                rebalance.remove_member_and_rebalance(group, member, self.settings, now_ms, fx)
        return fx
