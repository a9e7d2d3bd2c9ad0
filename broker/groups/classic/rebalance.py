"""Rebalance of a classic group.

Functions with ``fx`` extend these effects, and change the group at once or, if it is large, in a continuation. Timers:
``("join", group)`` ends the join phase, ``("sync", group)`` the wait for SyncGroup, ``("session", group, member)``
expires a member. Also settings and effects of groups of all types: `GroupSettings`, `GroupEffects`, `ExpiredMember`.

Source: ``GroupMetadataManager.java``, the ``classicGroup...`` methods (apache/kafka 4.3.1).

The delay of a new group's first rebalance: KIP-134; the rebalance timeout apart from the session's: KIP-62.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState, GroupRequest
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.settings import ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings
from ottla.jobs.state_machine import RECORDS_PER_STEP, CancelTimer, Effects, RequestReply, ScheduleTimer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group, offset_records, sync_group

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
MIN_STATIC_MEMBER_WAIT_MS = 1000
"""Minimum time (ms) to wait for a static member to rejoin: the rebalance timeout may be 0."""

if TYPE_CHECKING:
    GroupEffects = Effects[GroupRecord]
else:
    GroupEffects = Effects  # calling a subscripted class doubles the cost


class GroupSettings(NamedTuple):
    """Group coordinator settings of a broker: limits of classic groups, retention, and those of other types."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_metadata_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    expiry_every_ms: int = 600_000
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    share: ShareGroupSettings = ShareGroupSettings()
    streams: StreamsGroupSettings = StreamsGroupSettings()

    def allows_session_timeout(self, session_timeout_ms: int) -> bool:
        """Return True if a session timeout is within the broker's bounds (`group.min.session.timeout.ms`, ``max``)."""
        return self.min_session_timeout_ms <= session_timeout_ms <= self.max_session_timeout_ms


class LeaderAssignment(NamedTuple):
    """Context of the write of the assignments by member id that a leader sent; they take effect once committed."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


class ExpiredMember(NamedTuple):
    """Context of a write that removes a member whose timer has expired; used if the write fails.

    Attributes:
        key: key of the timer.
        owner: the member when the timer expired; a later record about the member replaces the object.
    """

    key: tuple[str, ...]
    owner: Any


def append_group_record(group: ClassicGroup, fx: GroupEffects) -> None:
    """Add the group metadata record with the current state to the effects."""
    fx.records.append(GroupRecord(offset_records.GroupMetadataKey(group.id), group.to_record_value()))


def arm_session(group: ClassicGroup, member: ClassicGroupMember, now_ms: int, fx: GroupEffects) -> None:
    """Add to ``fx`` the restart of a member's session timeout; 5 minutes until the first JoinGroup response."""
    wait = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
    fx.timers.append(ScheduleTimer(("session", group.id, member.id), now_ms + wait))


def cancel_session(group: ClassicGroup, member_id: str, fx: GroupEffects) -> None:
    """Add to ``fx`` the cancellation of the session timeout of a removed member."""
    fx.timers.append(CancelTimer(("session", group.id, member_id)))


def join_error(code: ErrorCode, member_id: str, version: int) -> join_group.JoinGroupResponse:
    """Return a JoinGroup response with an error code. The protocol name is empty before v7, null from v7."""
    name = None if version >= 7 else ""
    return join_group.JoinGroupResponse(error_code=code, member_id=member_id, generation_id=-1, protocol_name=name)


def reply_join(group: ClassicGroup, member: ClassicGroupMember, message: Message, fx: GroupEffects) -> None:
    """Complete the pending JoinGroup request of a member with ``message``, by a reply in ``fx``, if there is one."""
    parked = group.set_awaiting_join(member, None)
    if parked is not None:
        fx.replies.append(RequestReply(parked.pending_request, message))


def reject_join(
    group: ClassicGroup, member: ClassicGroupMember, code: ErrorCode, member_id: str, fx: GroupEffects
) -> None:
    """Complete the pending JoinGroup request of a member, if there is one, with an error code and ``member_id``."""
    if member.awaiting_join is not None:
        reply_join(group, member, join_error(code, member_id, member.awaiting_join.version), fx)


def reject_sync(member: ClassicGroupMember, code: ErrorCode, fx: GroupEffects) -> None:
    """Complete the pending SyncGroup request of a member, if there is one, with an error code. It stays a member."""
    reply_sync(member, sync_group.SyncGroupResponse(error_code=code), fx)


def reply_sync(member: ClassicGroupMember, message: Message, fx: GroupEffects) -> None:
    """Complete the pending SyncGroup request of a member with ``message``, by a reply in ``fx``, if there is one."""
    if member.awaiting_sync is not None:
        fx.replies.append(RequestReply(member.awaiting_sync.pending_request, message))
        member.awaiting_sync = None


def build_join_response(
    group: ClassicGroup, member: ClassicGroupMember, *, members: bool, leader: str | None = None
) -> join_group.JoinGroupResponse:
    """Return the JoinGroup response of the current generation; ``members`` adds all members' metadata, for the leader.

    ``leader``: member id to return as the leader instead of the current leader.
    """
    rows: list[join_group.JoinGroupResponseMember] = []
    if members:
        protocol = group.protocol or ""
        rows = [
            join_group.JoinGroupResponseMember(m.id, m.instance_id, m.metadata_for(protocol))
            for m in group.members.values()
        ]
    return join_group.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if leader is None else leader) or "",
        member_id=member.id,
        members=rows,
    )


def build_sync_response(group: ClassicGroup, member: ClassicGroupMember) -> sync_group.SyncGroupResponse:
    """Return the SyncGroup response with the member's assignment."""
    return sync_group.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def protocols_of(request: join_group.JoinGroupRequest) -> list[tuple[str, bytes]]:
    """Return (name, metadata) of the protocols of a request in order; of duplicate names the first."""
    out: dict[str, bytes] = {}
    for protocol in request.protocols:
        out.setdefault(protocol.name, protocol.metadata)
    return list(out.items())


def rebalance_timeout_of(request: join_group.JoinGroupRequest) -> int:
    """Return the rebalance timeout of a request (ms); the session timeout where it has none (v0)."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def update_member_and_hold_join(
    group: ClassicGroup, member: ClassicGroupMember, call: GroupRequest, fx: GroupEffects
) -> None:
    """Update a member from a JoinGroup and hold the request; an older held request fails with REBALANCE_IN_PROGRESS."""
    request: join_group.JoinGroupRequest = call.request
    group.set_protocols(member, protocols_of(request))
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout_of(request)
    reject_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.id, fx)
    group.set_awaiting_join(member, call)


def store_leader_assignment(group: ClassicGroup, request: sync_group.SyncGroupRequest, fx: GroupEffects) -> None:
    """Add to ``fx`` the record with the assignments of the leader's SyncGroup; they apply once it is committed."""
    given = {a.member_id: a.assignment for a in request.assignments}
    shares = {member_id: given.get(member_id, b"") for member_id in group.members}
    fx.records.append(GroupRecord(offset_records.GroupMetadataKey(group.id), group.to_record_value(shares)))
    fx.on_commit_outcome = LeaderAssignment(group.id, group.generation, shares)


def on_assignment_outcome(
    group: ClassicGroup,
    assignment: LeaderAssignment,
    error: ErrorCode,
    settings: GroupSettings,
    now_ms: int,
    fx: GroupEffects,
) -> None:
    """Propagate the committed assignment or, if its write failed, fail the pending SyncGroups and rebalance again.

    Do nothing if another rebalance has started meanwhile.
    """
    if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation != assignment.generation:
        return  # another rebalance has started and failed the pending requests
    if error is ErrorCode.NONE:
        propagate_assignment(group, assignment.assignments, error, now_ms, fx)
        group.transition_to(ClassicGroupState.STABLE, now_ms)
    else:
        propagate_assignment(group, {}, error, now_ms, fx)
        prepare_rebalance(group, settings, now_ms, fx)


def propagate_assignment(
    group: ClassicGroup, shares: Mapping[str, bytes], error: ErrorCode, now_ms: int, fx: GroupEffects
) -> None:
    """Set the assignments of all members (empty if not in ``shares``), and complete or fail their pending SyncGroups.

    With ``error`` NONE the response has the assignment, else the error code. Sessions of those members restart.
    """
    fx.continue_with(_propagate_assignment(group, shares, error, now_ms), len(group.members))


def _propagate_assignment(
    group: ClassicGroup, shares: Mapping[str, bytes], error: ErrorCode, now_ms: int
) -> Iterator[GroupEffects]:
    fx = GroupEffects()
    for number, member in enumerate(group.members.values()):
        if number and number % RECORDS_PER_STEP == 0:
            yield fx
            fx = GroupEffects()
        member.assignment = shares.get(member.id, b"")
        if member.awaiting_sync is not None:
            answer = (
                build_sync_response(group, member)
                if error is ErrorCode.NONE
                else sync_group.SyncGroupResponse(error_code=error)
            )
            reply_sync(member, answer, fx)
            arm_session(group, member, now_ms, fx)
    yield fx


def prepare_rebalance(group: ClassicGroup, settings: GroupSettings, now_ms: int, fx: GroupEffects) -> None:
    """Start a rebalance: fail pending SyncGroups (REBALANCE_IN_PROGRESS), start the join phase; it may end at once."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        propagate_assignment(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, fx)
    fx.timers.append(CancelTimer(("sync", group.id)))
    group.pending_sync_members.clear()
    initial = group.state is ClassicGroupState.EMPTY
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, now_ms)
    if initial and settings.initial_rebalance_delay_ms == 0:
        complete_join(group, now_ms, fx)  # without waiting for members that were only assigned an id
    elif initial:
        first = settings.initial_rebalance_delay_ms
        group.remaining_initial_delay_ms = max(group.rebalance_timeout_ms - first, 0)
        group.new_member_added = False
        fx.timers.append(ScheduleTimer(("join", group.id), now_ms + first))
    else:
        fx.timers.append(ScheduleTimer(("join", group.id), now_ms + group.rebalance_timeout_ms))
        maybe_complete_join(group, now_ms, fx)


def maybe_prepare_rebalance_or_complete_join(
    group: ClassicGroup, settings: GroupSettings, now_ms: int, fx: GroupEffects
) -> None:
    """Start a rebalance or, in the join phase, end that phase if all members have joined and no initial delay runs."""
    if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY):
        prepare_rebalance(group, settings, now_ms, fx)
    else:
        maybe_complete_join(group, now_ms, fx)


def maybe_complete_join(group: ClassicGroup, now_ms: int, fx: GroupEffects) -> None:
    """Complete the join phase early if all members have joined; never during the initial delay."""
    if not group.is_initial_rebalance:
        complete_join_if_all_joined(group, now_ms, fx)


def complete_join_if_all_joined(group: ClassicGroup, now_ms: int, fx: GroupEffects) -> None:
    """Complete the join phase early if all members have joined, even during the initial delay.

    Kafka does so when a session expires during the delay (``removeMemberAndUpdateClassicGroup``).
    """
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete_join(group, now_ms, fx)


def on_join_timeout(group: ClassicGroup, settings: GroupSettings, now_ms: int, fx: GroupEffects) -> None:
    """Complete the join phase at its timeout, or extend the initial delay because members have joined."""
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return
    left = group.remaining_initial_delay_ms or 0
    if left > 0 and group.new_member_added:
        group.new_member_added = False
        step = min(settings.initial_rebalance_delay_ms, left)
        group.remaining_initial_delay_ms = max(left - step, 0)
        fx.timers.append(ScheduleTimer(("join", group.id), now_ms + step))
        return
    complete_join(group, now_ms, fx)


def complete_join(group: ClassicGroup, now_ms: int, fx: GroupEffects) -> None:
    """End the join phase: start the next generation with the members that joined; other dynamic members are removed.

    In a large group the continuation of ``fx`` does it. A group without members becomes empty; one in which only static
    members are left that did not join waits again.
    """
    group.remaining_initial_delay_ms = None
    fx.timers.append(CancelTimer(("join", group.id)))
    fx.continue_with(_complete_join(group, now_ms), len(group.members))


def _complete_join(group: ClassicGroup, now_ms: int) -> Iterator[GroupEffects]:
    fx = GroupEffects()
    absent = [m.id for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]
    for number, member_id in enumerate(absent, 1):
        cancel_session(group, member_id, fx)
        group.remove(member_id)
        if number % RECORDS_PER_STEP == 0:
            yield fx
            fx = GroupEffects()
    if group.members and not _maybe_elect_new_leader(group):
        # Only static members are left and none has rejoined: keep waiting for one to lead.
        fx.timers.append(
            ScheduleTimer(("join", group.id), now_ms + max(group.rebalance_timeout_ms, MIN_STATIC_MEMBER_WAIT_MS))
        )
        yield fx
        return
    group.generation += 1
    if not group.members:
        group.protocol = None
        group.leader = None
        group.transition_to(ClassicGroupState.EMPTY, now_ms)
        append_group_record(group, fx)
        yield fx
        return
    group.protocol = group.select_protocol()
    group.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
    for number, member in enumerate(group.members.values()):
        if number % RECORDS_PER_STEP == 0:  # start a slice with the leader's response, which is large
            yield fx
            fx = GroupEffects()
        reply_join(group, member, build_join_response(group, member, members=member.id == group.leader), fx)
        member.is_new = False
        arm_session(group, member, now_ms, fx)
        group.pending_sync_members[member.id] = None
    fx.timers.append(ScheduleTimer(("sync", group.id), now_ms + group.rebalance_timeout_ms))
    yield fx


def _maybe_elect_new_leader(group: ClassicGroup) -> bool:
    """Keep a leader that has rejoined, else make the first member that has rejoined the leader; return True.

    Return False, and leave the leader unchanged, if no member has rejoined.
    """
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.awaiting_join is not None:
        return True
    first = next((m for m in group.members.values() if m.awaiting_join is not None), None)
    if first is None:
        return False
    group.leader = first.id
    return True


def on_sync_timeout(group: ClassicGroup, settings: GroupSettings, now_ms: int, fx: GroupEffects) -> None:
    """Remove the members that did not send SyncGroup in time and start another rebalance; nothing if all have sent."""
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        return
    if group.pending_sync_members:
        fx.continue_with(_remove_unsynced_members(group, settings, now_ms), len(group.members))


def _remove_unsynced_members(
    group: ClassicGroup, settings: GroupSettings, now_ms: int
) -> Iterator[GroupEffects | None]:
    fx = GroupEffects()
    for number, member_id in enumerate(list(group.pending_sync_members), 1):
        cancel_session(group, member_id, fx)
        group.remove(member_id)
        if number % RECORDS_PER_STEP == 0:
            yield fx
            fx = GroupEffects()
    prepare_rebalance(group, settings, now_ms, fx)
    yield from fx.flatten()


def remove_member(group: ClassicGroup, member: ClassicGroupMember, fx: GroupEffects) -> None:
    """Remove a member, without a rebalance, and its session timeout; its requests fail with UNKNOWN_MEMBER_ID."""
    reject_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, "", fx)
    reject_sync(member, ErrorCode.UNKNOWN_MEMBER_ID, fx)
    group.remove(member.id)
    cancel_session(group, member.id, fx)


def remove_member_and_rebalance(
    group: ClassicGroup, member: ClassicGroupMember, settings: GroupSettings, now_ms: int, fx: GroupEffects
) -> None:
    """Remove a member, then start a rebalance or complete the current join phase if all others have joined."""
    remove_member(group, member, fx)
    if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, settings, now_ms, fx)
    else:
        complete_join_if_all_joined(group, now_ms, fx)
