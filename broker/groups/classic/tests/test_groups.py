"""Classic groups in virtual time: joins, rebalances, sessions, static members."""

from __future__ import annotations

import heapq
from typing import Any

import pytest

from ottla.broker.coordinator.events import ShardLoaded, TimerExpired, WriteResult
from ottla.broker.groups.classic.classic_group import ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects, GroupSettings
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.groups.records import decode, encode
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.jobs.state_machine import ScheduleTimer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat, join_group, leave_group, sync_group


class GroupShardFixture:
    """In-memory coordinator shard: clock, timers, log, and replies by pending request."""

    def __init__(self, **settings: int) -> None:
        self.machine = GroupStateMachine(GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings}))
        self.now = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[str, Any] = {}
        self.commits = True
        """Whether what is written is committed at once."""
        self.unsettled: list[Any] = []
        self.fired = 0
        self._heap: list[tuple[int, int, Any]] = []
        self._armed: dict[Any, int] = {}
        self._count = 0

    def apply(self, fx: GroupEffects) -> None:
        for record in fx.records:
            raw = encode(record)
            self.log.append(raw)
            back = decode(*raw)
            assert back is not None
            self.machine.replay(len(self.log), back)
        self.set(fx.timers)
        for part in filter(None, fx.continuation or ()):
            self.apply(part)
        for reply in fx.replies:
            assert reply.pending_request not in self.answers, f"{reply.pending_request} was answered twice"
            self.answers[reply.pending_request] = reply.message
        if fx.on_commit_outcome is not None:
            self.unsettled.append(fx.on_commit_outcome)
            if self.commits:
                self.complete_writes()

    def set(self, timers: list[Any]) -> None:
        for timer in timers:
            self._armed.pop(timer.key, None)
            if isinstance(timer, ScheduleTimer):
                self._count += 1
                self._armed[timer.key] = self._count
                heapq.heappush(self._heap, (timer.deadline_ms, self._count, timer.key))

    def complete_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the pending writes."""
        while self.unsettled:
            self.apply(self.machine.handle(self.now, WriteResult(self.unsettled.pop(0), error)))

    def send(self, pending: str, request: Any, version: int = 9, client: str = "c") -> Any:
        self.apply(
            self.machine.handle(self.now, GroupRequest(pending, request, version, client, "10.0.0.1", f"id-{pending}"))
        )
        return self.answers.get(pending)

    def wait(self, ms: int) -> None:
        """Advance the clock and fire the timers that become due."""
        until = self.now + ms
        while self._heap and self._heap[0][0] <= until:
            at, count, key = heapq.heappop(self._heap)
            if self._armed.get(key) == count:
                del self._armed[key]
                self.now = max(self.now, at)
                self.fired += 1
                assert self.fired < 100_000, "a timer that sets itself at once"
                self.apply(self.machine.handle(self.now, TimerExpired(key)))
        self.now = until

    def join(
        self,
        pending: str,
        member: str = "",
        instance: str | None = None,
        names: tuple[str, ...] = ("range",),
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
    ) -> Any:
        protocols = [join_group.JoinGroupRequestProtocol(name, b"said by " + pending.encode()) for name in names]
        request = join_group.JoinGroupRequest("g", session_ms, rebalance_ms, member, instance, "consumer", protocols)
        return self.send(pending, request, version)

    def enter(self, pending: str) -> str:
        """Join as a new dynamic member with the member id that is handed out; return the id."""
        refused = self.join(pending + "?")
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.join(pending, refused.member_id)
        member: str = refused.member_id
        return member

    def sync(self, pending: str, member: str, generation: int, shares: dict[str, bytes] | None = None) -> Any:
        assignments = [sync_group.SyncGroupRequestAssignment(m, a) for m, a in (shares or {}).items()]
        request = sync_group.SyncGroupRequest("g", generation, member, None, "consumer", "range", assignments)
        return self.send(pending, request, 5)

    def beat(self, member: str, generation: int) -> int:
        self._count += 1
        answer = self.send(f"beat-{self._count}", heartbeat.HeartbeatRequest("g", generation, member), 4)
        code: int = answer.error_code
        return code

    @property
    def group(self) -> Any:
        return self.machine.classic_groups.groups["g"]


def stable(count: int = 2) -> tuple[GroupShardFixture, list[str]]:
    """Return a stable group of ``count`` members in generation ``count``."""
    shard = GroupShardFixture()
    members: list[str] = []
    for number in range(count):
        fresh = shard.enter(f"join-{number}")
        for old in members:
            shard.join(f"rejoin-{number}-{old}", old)
        members.append(fresh)
    generation = shard.group.generation
    for member in members[1:]:
        shard.sync(f"sync-{member}", member, generation)
    shard.sync("sync-leader", members[0], generation, {m: b"share of " + m.encode() for m in members})
    assert shard.group.state is ClassicGroupState.STABLE
    return shard, members


@pytest.mark.behaviour("P-85")
def test_join_group_without_member_id_returns_member_id_required_and_id() -> None:
    shard = GroupShardFixture()
    refused = shard.join("a")
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id == "c-id-a"
    answer = shard.join("b", refused.member_id)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "c-id-a")
    assert [m.member_id for m in answer.members] == ["c-id-a"]


def test_join_group_before_v4_admits_member_without_id() -> None:
    assert GroupShardFixture().join("a", version=3).generation_id == 1


def test_pending_member_id_expires_with_session_timeout() -> None:
    shard = GroupShardFixture()
    member = shard.join("a").member_id
    shard.wait(10_001)
    assert shard.join("b", member).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_group_distributes_assignment_and_writes_it_to_record() -> None:
    shard, members = stable(2)
    assert shard.answers[f"sync-{members[1]}"].assignment == b"share of " + members[1].encode()
    assert shard.answers["sync-leader"].assignment == b"share of " + members[0].encode()
    stored = shard.machine.classic_groups.persisted_groups["g"]
    assert stored.generation == 2
    assert [m.member_id for m in stored.members] == members


@pytest.mark.behaviour("P-86")
def test_initial_rebalance_delay_is_extended_by_joining_members() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    first = shard.enter("a")
    shard.wait(2000)
    second = shard.enter("b")
    shard.wait(1500)
    assert "a" not in shard.answers, "extended because b came"
    shard.wait(3000)
    assert {m.member_id for m in shard.answers["a"].members} == {first, second}
    assert shard.answers["b"].generation_id == 1


@pytest.mark.behaviour("P-88")
def test_heartbeat_during_rebalance_or_of_old_generation_returns_error() -> None:
    shard, members = stable(2)
    assert shard.beat(members[0], 2) == 0
    shard.enter("new")
    assert shard.beat(members[0], 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.beat(members[0], 1) == ErrorCode.ILLEGAL_GENERATION
    assert shard.beat("stranger", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_timeout_removes_members_that_did_not_rejoin() -> None:
    shard, members = stable(2)
    shard.enter("new")
    shard.join("back", members[0])
    for _ in range(4):
        shard.wait(7000)
        if members[1] in shard.group.members:
            shard.beat(members[1], 2)
    shard.wait(3000)
    assert shard.answers["back"].generation_id == 3
    assert members[1] not in shard.group.members


def test_session_timeout_removes_member_and_starts_rebalance() -> None:
    shard, members = stable(2)
    shard.wait(9000)
    assert shard.beat(members[0], 2) == 0
    shard.wait(1500)
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert shard.beat(members[0], 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.join("again", members[0]).generation_id == 3
    assert list(shard.group.members) == [members[0]]


@pytest.mark.behaviour("P-87")
def test_member_waiting_in_join_needs_no_heartbeat() -> None:
    shard, members = stable(2)
    shard.join("leader-back", members[0])
    shard.wait(9_999)
    shard.beat(members[1], 2)
    shard.wait(9_000)
    assert members[0] in shard.group.members
    assert "leader-back" not in shard.answers


def test_leave_of_last_member_keeps_empty_group_with_generation() -> None:
    shard, members = stable(1)
    answer = shard.send(
        "leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5
    )
    assert answer.members[0].error_code == 0
    assert shard.group.state is ClassicGroupState.EMPTY
    stored = shard.machine.classic_groups.persisted_groups["g"]
    assert (stored.members, stored.generation, stored.protocol, stored.leader) == ([], 2, None, None)


def test_unchanged_rejoin_of_follower_keeps_group_stable_and_of_leader_rebalances() -> None:
    shard, members = stable(2)
    shard.group.set_protocols(shard.group.members[members[1]], [("range", b"said by x")])
    same = shard.join("x", members[1])
    assert (same.error_code, same.generation_id) == (0, 2)
    assert shard.group.state is ClassicGroupState.STABLE
    shard.join("y", members[0])
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_join_group_without_common_protocol_returns_inconsistent_group_protocol() -> None:
    shard, _ = stable(1)
    assert shard.join("z", names=("roundrobin",)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_is_selected_by_vote_among_protocols_all_members_support() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=100)
    for pending, names in (("a", ("x", "range")), ("b", ("range", "x")), ("d", ("range", "y", "x"))):
        shard.join(pending, names=names, version=3)
    shard.wait(5000)
    assert {shard.answers[t].protocol_name for t in "abd"} == {"range"}


def test_sync_timeout_removes_member_despite_heartbeats() -> None:
    shard, members = stable(2)
    shard.join("l", members[0])
    shard.join("f", members[1])
    generation = shard.group.generation
    shard.sync("only-leader", members[0], generation, {})
    assert shard.group.state is ClassicGroupState.STABLE, "the leader's sync is enough"
    for _ in range(5):
        assert set(members) == set(shard.group.members)
        shard.wait(6001)
        for member in members:
            shard.beat(member, generation)
    assert list(shard.group.members) == [members[0]], "heartbeats do not replace the sync"


@pytest.mark.behaviour("P-89")
def test_static_member_rejoin_skips_rebalance_and_fences_old_member_id() -> None:
    shard = GroupShardFixture()
    first = shard.join("a", instance="i1", version=9)
    shard.sync("s1", first.member_id, 1, {first.member_id: b"mine"})
    assert shard.group.state is ClassicGroupState.STABLE
    again = shard.join("b", instance="i1", version=9)
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.member_id != first.member_id
    assert shard.group.state is ClassicGroupState.STABLE
    old = heartbeat.HeartbeatRequest("g", 1, first.member_id, "i1")
    assert shard.send("old", old, 4).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.sync("s2", again.member_id, 1).assignment == b"mine"
    assert [m.member_id for m in shard.machine.classic_groups.persisted_groups["g"].members] == [again.member_id]


def test_leave_group_by_instance_id_removes_static_member() -> None:
    shard = GroupShardFixture()
    shard.join("a", instance="i1")
    answer = shard.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity("", "i1")]), 5)
    assert answer.members[0].error_code == 0
    assert shard.group.members == {}


def test_join_group_over_group_max_size_returns_group_max_size_reached() -> None:
    shard = GroupShardFixture(max_size=1)
    shard.join("a", version=3)
    assert shard.join("b", version=3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def commit(shard: GroupShardFixture, pending: str, member: str, generation: int, offset: int) -> Any:
    new = OffsetToCommit("t", bytes(15) + b"\x01", 0, offset, 3, "meta")
    event = CommitOffsets(pending, "g", member, None, generation, -1, [new], 9)
    shard.apply(shard.machine.handle(shard.now, event))
    return shard.answers[pending]


@pytest.mark.behaviour("P-90")
def test_offset_commit_with_members_requires_member_id_and_generation() -> None:
    shard, members = stable(1)
    generation = shard.group.generation
    assert commit(shard, "c1", members[0], generation, 5) is ErrorCode.NONE
    assert commit(shard, "c2", members[0], generation - 1, 6) is ErrorCode.ILLEGAL_GENERATION
    assert commit(shard, "c3", "", -1, 7) is ErrorCode.UNKNOWN_MEMBER_ID
    stored = shard.machine.offsets.get("g", "t", 0)
    assert stored is not None
    assert (stored.offset, stored.leader_epoch, stored.metadata) == (5, 3, "meta")
    shard.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5)
    assert commit(shard, "c4", "", -1, 8) is ErrorCode.NONE


def test_shard_loaded_restores_groups_and_offsets_from_log() -> None:
    shard, members = stable(2)
    commit(shard, "c", members[0], 2, 41)
    again = GroupShardFixture()
    again.log = list(shard.log)
    for number, (key, value) in enumerate(shard.log):
        record = decode(key, value)
        assert record is not None
        again.machine.replay(number, record)
    again.apply(again.machine.handle(0, ShardLoaded()))
    assert again.group.state is ClassicGroupState.STABLE
    assert again.beat(members[0], 2) == 0
    assert again.sync("s", members[1], 2).assignment == b"share of " + members[1].encode()
    stored = again.machine.offsets.get("g", "t", 0)
    assert stored is not None
    assert stored.offset == 41
    again.wait(9_000)
    again.beat(members[0], 2)
    again.wait(2_000)
    assert members[1] not in again.group.members, "who does not come back is dropped after its session"
