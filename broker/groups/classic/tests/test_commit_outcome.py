"""Effects of committed and refused group records: state changes on commit, and every pending request is answered."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded
from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.tests.test_group_rules import in_state, leave
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture, stable
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group, leave_group


def waiting(stage: GroupShardFixture) -> GroupShardFixture:
    """Leave written records uncommitted until the test commits them."""
    stage.commits = False
    return stage


# ---------------------------------------------------------------------- new groups


def test_join_group_new_group_created_when_record_committed() -> None:
    stage = waiting(GroupShardFixture())
    assert stage.join("a") is None
    assert stage.machine.classic_groups.groups == {}
    assert len(stage.log) == 1
    stage.settle()
    assert stage.answers["a"].error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert stage.group.state is ClassicGroupState.EMPTY


def test_join_group_record_refused_creates_no_group() -> None:
    stage = waiting(GroupShardFixture())
    stage.join("a", version=6)
    stage.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = stage.answers["a"]
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", "")
    assert stage.machine.classic_groups.groups == {}


def test_join_group_two_members_creating_same_group_are_both_members() -> None:
    stage = waiting(GroupShardFixture(initial_rebalance_delay_ms=3000))
    stage.join("a", version=3)
    stage.join("b", version=3)
    stage.settle()
    assert len(stage.group.members) == 2


# ---------------------------------------------------------------------- assignments


def assigning() -> tuple[GroupShardFixture, list[str], int]:
    """Return a group with a follower that waits while the leader's assignment is written and not committed."""
    stage, members = in_state("completing")
    waiting(stage)
    generation = stage.group.generation
    stage.sync("follower", members[1], generation)
    stage.sync("leader", members[0], generation, {members[1]: b"share"})
    assert stage.machine.classic_groups.persisted_groups["g"].generation == generation, "written"
    assert stage.group.state is ClassicGroupState.COMPLETING_REBALANCE
    assert not {"leader", "follower"} & set(stage.answers)
    return stage, members, generation


def test_sync_group_assignment_takes_effect_when_record_committed() -> None:
    stage, members, generation = assigning()
    assert stage.group.members[members[1]].assignment != b"share"
    stage.settle()
    assert stage.answers["follower"].assignment == b"share"
    assert stage.answers["leader"].assignment == b"", "whom the leader forgets gets nothing"
    assert stage.group.state is ClassicGroupState.STABLE
    rows = {m.member_id: m.assignment for m in stage.machine.classic_groups.persisted_groups["g"].members}
    assert rows == {members[0]: b"", members[1]: b"share"}
    assert stage.machine.classic_groups.persisted_groups["g"].current_state_timestamp == stage.group.state_since_ms
    assert stage.beat(members[0], generation) == 0


def test_sync_group_assignment_refused_restarts_rebalance() -> None:
    stage, members, generation = assigning()
    stage.settle(ErrorCode.NOT_COORDINATOR)
    assert {stage.answers[t].error_code for t in ("leader", "follower")} == {ErrorCode.NOT_COORDINATOR}
    assert stage.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert all(m.assignment == b"" for m in stage.group.members.values())
    for member in members:
        stage.join(f"back {member}", member)
    assert stage.group.generation == generation + 1


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_sync_group_assignment_committed_after_generation_ended_is_ignored(error: ErrorCode) -> None:
    stage, members, generation = assigning()
    stage.join("leader again", members[0], names=("range", "more"))
    assert stage.answers["follower"].error_code == ErrorCode.REBALANCE_IN_PROGRESS, "it did not wait for the record"
    stage.settle(error)
    assert stage.group.state is ClassicGroupState.PREPARING_REBALANCE
    stage.join("follower again", members[1])
    assert (stage.group.state, stage.group.generation) == (ClassicGroupState.COMPLETING_REBALANCE, generation + 1)
    stage.unsettled.append(stage.machine.classic_groups and _assigned(generation))
    stage.settle(error)
    assert stage.group.state is ClassicGroupState.COMPLETING_REBALANCE


def _assigned(generation: int) -> Any:
    from ottla.broker.groups.classic.rebalance import LeaderAssignment

    return LeaderAssignment("g", generation, {})


def test_sync_group_assignment_committed_after_group_removed_is_ignored() -> None:
    stage = GroupShardFixture()
    stage.unsettled.append(_assigned(3))
    stage.settle()
    assert stage.machine.classic_groups.groups == {}


# ---------------------------------------------------------------------- static members


def static_group() -> tuple[GroupShardFixture, str]:
    stage = GroupShardFixture()
    first = stage.join("a", instance="i", version=9)
    stage.sync("s", first.member_id, 1, {first.member_id: b"mine"})
    return waiting(stage), first.member_id


def test_static_member_rejoin_keeps_old_id_until_record_committed() -> None:
    stage, old = static_group()
    assert stage.join("b", instance="i") is None
    assert list(stage.group.members) == [old]
    assert stage.beat(old, 1) == 0
    assert [m.member_id for m in stage.machine.classic_groups.persisted_groups["g"].members] == ["i-id-b"]
    assert stage.machine.classic_groups.persisted_groups["g"].leader == "i-id-b"
    stage.settle()
    answer = stage.answers["b"]
    assert (answer.error_code, answer.member_id, answer.leader) == (0, "i-id-b", "i-id-b")
    assert answer.skip_assignment
    assert [m.member_id for m in answer.members] == ["i-id-b"]
    assert list(stage.group.members) == ["i-id-b"]
    stage.wait(10_001)
    assert stage.group.members == {}, "its session began with its answer"


def test_static_leader_rejoin_before_v9_returns_old_leader_id() -> None:
    stage, old = static_group()
    stage.commits = True
    answer = stage.join("b", instance="i", version=8)
    assert (answer.leader, answer.skip_assignment, answer.members) == (old, False, [])


def test_static_follower_rejoin_returns_leader_id() -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=100)
    stage.join("a", instance="i", version=9)
    stage.join("b", instance="k", version=9)
    stage.wait(200)
    leader, follower = list(stage.group.members)
    stage.sync("s", leader, 1, {})
    answer = stage.join("c", instance="k", version=9)
    assert (answer.leader, answer.member_id, answer.skip_assignment, answer.members) == (leader, "k-id-c", False, [])
    assert follower not in stage.group.members


def test_static_member_rejoin_record_refused_keeps_old_member_id() -> None:
    stage, old = static_group()
    stage.join("b", instance="i")
    stage.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = stage.answers["b"]
    assert (answer.error_code, answer.member_id, answer.generation_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", 1)
    assert list(stage.group.members) == [old]
    assert stage.group.static_member_ids == {"i": old}
    assert stage.beat(old, 1) == 0


def test_static_member_rejoin_after_group_left_stable_starts_rebalance() -> None:
    stage, old = static_group()
    stage.join("b", instance="i")
    stage.join("old leader rejoins", old, instance="i")
    assert stage.group.state is ClassicGroupState.COMPLETING_REBALANCE
    stage.settle()
    assert stage.answers["b"].generation_id == 3, "a rebalance, as a known static member outside a stable group"
    assert list(stage.group.members) == ["i-id-b"]


def test_static_member_rejoin_changing_protocol_choice_starts_rebalance() -> None:
    stage, _ = static_group()
    answer = stage.join("b", instance="i", names=("sticky", "range"))
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")
    assert not answer.skip_assignment


def test_static_member_rejoin_during_rebalance_fences_waiting_instance() -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=3000)
    stage.join("a", instance="i", version=9)
    stage.join("b", instance="i", version=9)
    refused = stage.answers["a"]
    assert (refused.error_code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "i-id-a")
    assert list(stage.group.members) == ["i-id-b"]
    assert not stage.group.members["i-id-b"].is_new
    stage.wait(3000)
    assert stage.answers["b"].generation_id == 1
    stage.sync("s", "i-id-b", 1)
    waiting(stage)
    stage.join("c", "i-id-b", instance="i")


def test_static_member_rejoin_record_holds_its_new_timeouts_and_subscription() -> None:
    stage, _ = static_group()
    request = join_group.JoinGroupRequest(
        "g", 7_000, 8_000, "", "i", "consumer", [join_group.JoinGroupRequestProtocol("range", b"fresh")]
    )
    stage.send("b", request, 9)
    row = stage.machine.classic_groups.persisted_groups["g"].members[0]
    assert (row.session_timeout, row.rebalance_timeout, row.subscription) == (7_000, 8_000, b"fresh")
    assert row.assignment == b"mine"


# ---------------------------------------------------------------------- pending requests are answered


def test_shard_unloaded_answers_parked_joins_and_syncs_not_coordinator() -> None:
    stage, members = in_state("preparing")
    stage.apply(stage.machine.handle(stage.now, ShardUnloaded(ErrorCode.NOT_COORDINATOR)))
    answer = stage.answers["leader comes"]
    assert (answer.error_code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, members[0])
    stage, members = in_state("completing")
    stage.sync("waits", members[1], stage.group.generation)
    stage.apply(stage.machine.handle(stage.now, ShardUnloaded(ErrorCode.NOT_COORDINATOR)))
    assert stage.answers["waits"].error_code == ErrorCode.NOT_COORDINATOR


def test_join_and_sync_sent_again_answers_first_rebalance_in_progress() -> None:
    stage, members = in_state("preparing")
    stage.join("again", members[0])
    assert stage.answers["leader comes"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    stage.join("follower comes", members[1])
    assert stage.answers["again"].error_code == 0
    stage.sync("once", members[1], stage.group.generation)
    stage.sync("twice", members[1], stage.group.generation)
    assert stage.answers["once"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    stage.sync("leader", members[0], stage.group.generation, {members[1]: b"share"})
    assert stage.answers["twice"].assignment == b"share"


@pytest.mark.parametrize(
    ("version", "instance", "stays"),
    [(3, None, False), (3, "i", True), (9, "i", True)],
)
def test_disconnect_during_join_removes_dynamic_member_without_known_id(
    version: int, instance: str | None, stays: bool
) -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=3000)
    stage.join("other", version=3)
    stage.join("a", version=version, instance=instance)
    stage.apply(stage.machine.handle(stage.now, RequestDisconnected("g", "a")))
    assert (len(stage.group.members) == 2) is stays
    assert "other" not in stage.answers


def test_disconnect_during_join_keeps_member_with_known_id() -> None:
    stage, members = in_state("preparing")
    fresh = stage.enter("new")
    for ticket in ("new", "leader comes", "nobody"):
        stage.apply(stage.machine.handle(stage.now, RequestDisconnected("g", ticket)))
    stage.apply(stage.machine.handle(stage.now, RequestDisconnected("other group", "new")))
    assert set(stage.group.members) == {*members, fresh}
    stage.join("follower comes", members[1])
    assert stage.group.state is ClassicGroupState.COMPLETING_REBALANCE


# ---------------------------------------------------------------------- the first rebalance


@pytest.mark.behaviour("P-86")
@pytest.mark.parametrize(
    ("delay", "rebalance", "joins_at", "ends_at"),
    [
        (3000, 30_000, [], 3000),
        (3000, 30_000, [1000], 6000),
        (3000, 30_000, [1000, 4000, 7000], 12_000),
        (3000, 8_000, [1000, 4000, 7000], 8000),
        (3000, 4_000, [1000, 3500], 4000),
        (3000, 2_000, [1000], 3000),
    ],
)
def test_initial_rebalance_delay_extends_up_to_rebalance_timeout(
    delay: int, rebalance: int, joins_at: list[int], ends_at: int
) -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=delay)

    def join(ticket: str) -> None:
        protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
        stage.send(ticket, join_group.JoinGroupRequest("g", 10_000, rebalance, "", None, "consumer", protocols), 3)

    join("first")
    for number, at in enumerate(joins_at):
        stage.wait(at - stage.now)
        join(f"next-{number}")
    stage.wait(ends_at - stage.now - 1)
    assert "first" not in stage.answers
    stage.wait(1)
    assert stage.answers["first"].generation_id == 1, "G tryCompleteInitialRebalanceElseSchedule"
    assert len(stage.answers["first"].members) == 1 + len(joins_at)


def test_initial_rebalance_pending_member_expiry_completes_join() -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=60_000)
    stage.join("a?")
    stage.join("b", version=3)
    stage.wait(10_001)
    assert stage.answers["b"].generation_id == 1, "G removePendingMemberAndUpdateClassicGroup"


def test_initial_rebalance_pending_member_leave_does_not_complete_join() -> None:
    stage = GroupShardFixture(initial_rebalance_delay_ms=60_000)
    promised = stage.join("a?").member_id
    stage.join("b", version=3)
    leave(stage, [leave_group.MemberIdentity(promised)])
    assert "b" not in stage.answers, "G maybeCompleteJoinPhase"


def test_new_member_in_join_has_five_minute_timeout() -> None:
    stage, members = in_state("preparing")
    stage.enter("new")
    for _ in range(4):
        stage.wait(7_400)
        stage.beat(members[1], 2)
    assert "new" not in stage.answers
    stage.wait(1_000)
    assert stage.answers["new"].error_code == 0, "the rebalance timeout is over, its member is in"


# ---------------------------------------------------------------------- standing up


def test_shard_loaded_restores_classic_groups_in_slices() -> None:
    stage, members = stable(2)
    value = stage.machine.classic_groups.persisted_groups["g"]
    again = GroupShardFixture()
    for number in range(450):
        again.machine.classic_groups.persisted_groups[f"g{number}"] = value
    fx = again.machine.handle(0, ShardLoaded())
    parts = list(fx.continuation or ())
    assert 3 <= len(parts) <= 5
    assert sum(len(p.timers) for p in parts) == 900
    assert len(again.machine.classic_groups.groups) == 450
    group = again.machine.classic_groups.groups["g7"]
    assert (group.generation, group.leader, group.protocol, list(group.members)) == (2, members[0], "range", members)


def test_shard_loaded_member_without_rebalance_timeout_uses_session_timeout() -> None:
    stage, members = stable(1)
    value = stage.machine.classic_groups.persisted_groups["g"]
    value.members[0].rebalance_timeout = -1
    again = GroupShardFixture()
    again.machine.classic_groups.persisted_groups["g"] = value
    again.apply(again.machine.handle(0, ShardLoaded()))
    assert again.group.members[members[0]].rebalance_timeout_ms == 10_000
