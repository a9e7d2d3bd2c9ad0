"""Effects of committed and refused group records: state changes on commit, and every pending request is answered."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded
from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.rebalance import LeaderAssignment
from ottla.broker.groups.classic.tests.test_group_rules import in_state, leave
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture, stable
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group, leave_group


def waiting(shard: GroupShardFixture) -> GroupShardFixture:
    """Leave written records uncommitted until the test commits them."""
    shard.commits = False
    return shard


# ---------------------------------------------------------------------- new groups


def test_join_group_new_group_created_when_record_committed() -> None:
    shard = waiting(GroupShardFixture())
    assert shard.join("a") is None
    assert shard.machine.classic_groups.groups == {}
    assert len(shard.log) == 1
    shard.complete_writes()
    assert shard.answers["a"].error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert shard.group.state is ClassicGroupState.EMPTY


def test_join_group_record_refused_creates_no_group() -> None:
    shard = waiting(GroupShardFixture())
    shard.join("a", version=6)
    shard.complete_writes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = shard.answers["a"]
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", "")
    assert shard.machine.classic_groups.groups == {}


def test_join_group_two_members_creating_same_group_are_both_members() -> None:
    shard = waiting(GroupShardFixture(initial_rebalance_delay_ms=3000))
    shard.join("a", version=3)
    shard.join("b", version=3)
    shard.complete_writes()
    assert len(shard.group.members) == 2


# ---------------------------------------------------------------------- assignments


def assigning() -> tuple[GroupShardFixture, list[str], int]:
    """Return a group with a follower that waits while the leader's assignment is written and not committed."""
    shard, members = in_state("completing")
    waiting(shard)
    generation = shard.group.generation
    shard.sync("follower", members[1], generation)
    shard.sync("leader", members[0], generation, {members[1]: b"share"})
    assert shard.machine.classic_groups.persisted_groups["g"].generation == generation, "written"
    assert shard.group.state is ClassicGroupState.COMPLETING_REBALANCE
    assert not {"leader", "follower"} & set(shard.answers)
    return shard, members, generation


def test_sync_group_assignment_takes_effect_when_record_committed() -> None:
    shard, members, generation = assigning()
    assert shard.group.members[members[1]].assignment != b"share"
    shard.complete_writes()
    assert shard.answers["follower"].assignment == b"share"
    assert shard.answers["leader"].assignment == b"", "whom the leader forgets gets nothing"
    assert shard.group.state is ClassicGroupState.STABLE
    rows = {m.member_id: m.assignment for m in shard.machine.classic_groups.persisted_groups["g"].members}
    assert rows == {members[0]: b"", members[1]: b"share"}
    assert shard.machine.classic_groups.persisted_groups["g"].current_state_timestamp == shard.group.state_since_ms
    assert shard.beat(members[0], generation) == 0


def test_sync_group_assignment_refused_restarts_rebalance() -> None:
    shard, members, generation = assigning()
    shard.complete_writes(ErrorCode.NOT_COORDINATOR)
    assert {shard.answers[t].error_code for t in ("leader", "follower")} == {ErrorCode.NOT_COORDINATOR}
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert all(m.assignment == b"" for m in shard.group.members.values())
    for member in members:
        shard.join(f"back {member}", member)
    assert shard.group.generation == generation + 1


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_sync_group_assignment_committed_after_generation_ended_is_ignored(error: ErrorCode) -> None:
    shard, members, generation = assigning()
    shard.join("leader again", members[0], names=("range", "more"))
    assert shard.answers["follower"].error_code == ErrorCode.REBALANCE_IN_PROGRESS, "it did not wait for the record"
    shard.complete_writes(error)
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE
    shard.join("follower again", members[1])
    assert (shard.group.state, shard.group.generation) == (ClassicGroupState.COMPLETING_REBALANCE, generation + 1)
    shard.unsettled.append(shard.machine.classic_groups and _assigned(generation))
    shard.complete_writes(error)
    assert shard.group.state is ClassicGroupState.COMPLETING_REBALANCE


def _assigned(generation: int) -> Any:
    return LeaderAssignment("g", generation, {})


def test_sync_group_assignment_committed_after_group_removed_is_ignored() -> None:
    shard = GroupShardFixture()
    shard.unsettled.append(_assigned(3))
    shard.complete_writes()
    assert shard.machine.classic_groups.groups == {}


# ---------------------------------------------------------------------- static members


def static_group() -> tuple[GroupShardFixture, str]:
    shard = GroupShardFixture()
    first = shard.join("a", instance="i", version=9)
    shard.sync("s", first.member_id, 1, {first.member_id: b"mine"})
    return waiting(shard), first.member_id


def test_static_member_rejoin_keeps_old_id_until_record_committed() -> None:
    shard, old = static_group()
    assert shard.join("b", instance="i") is None
    assert list(shard.group.members) == [old]
    assert shard.beat(old, 1) == 0
    assert [m.member_id for m in shard.machine.classic_groups.persisted_groups["g"].members] == ["i-id-b"]
    assert shard.machine.classic_groups.persisted_groups["g"].leader == "i-id-b"
    shard.complete_writes()
    answer = shard.answers["b"]
    assert (answer.error_code, answer.member_id, answer.leader) == (0, "i-id-b", "i-id-b")
    assert answer.skip_assignment
    assert [m.member_id for m in answer.members] == ["i-id-b"]
    assert list(shard.group.members) == ["i-id-b"]
    shard.wait(10_001)
    assert shard.group.members == {}, "its session began with its answer"


def test_static_leader_rejoin_before_v9_returns_old_leader_id() -> None:
    shard, old = static_group()
    shard.commits = True
    answer = shard.join("b", instance="i", version=8)
    assert (answer.leader, answer.skip_assignment, answer.members) == (old, False, [])


def test_static_follower_rejoin_returns_leader_id() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=100)
    shard.join("a", instance="i", version=9)
    shard.join("b", instance="k", version=9)
    shard.wait(200)
    leader, follower = list(shard.group.members)
    shard.sync("s", leader, 1, {})
    answer = shard.join("c", instance="k", version=9)
    assert (answer.leader, answer.member_id, answer.skip_assignment, answer.members) == (leader, "k-id-c", False, [])
    assert follower not in shard.group.members


def test_static_member_rejoin_record_refused_keeps_old_member_id() -> None:
    shard, old = static_group()
    shard.join("b", instance="i")
    shard.complete_writes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = shard.answers["b"]
    assert (answer.error_code, answer.member_id, answer.generation_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", 1)
    assert list(shard.group.members) == [old]
    assert shard.group.static_member_ids == {"i": old}
    assert shard.beat(old, 1) == 0


def test_static_member_rejoin_after_group_left_stable_starts_rebalance() -> None:
    shard, old = static_group()
    shard.join("b", instance="i")
    shard.join("old leader rejoins", old, instance="i")
    assert shard.group.state is ClassicGroupState.COMPLETING_REBALANCE
    shard.complete_writes()
    assert shard.answers["b"].generation_id == 3, "a rebalance, as a known static member outside a stable group"
    assert list(shard.group.members) == ["i-id-b"]


def test_static_member_rejoin_changing_protocol_choice_starts_rebalance() -> None:
    shard, _ = static_group()
    answer = shard.join("b", instance="i", names=("sticky", "range"))
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")
    assert not answer.skip_assignment


def test_static_member_rejoin_during_rebalance_fences_waiting_instance() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    shard.join("a", instance="i", version=9)
    shard.join("b", instance="i", version=9)
    refused = shard.answers["a"]
    assert (refused.error_code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "i-id-a")
    assert list(shard.group.members) == ["i-id-b"]
    assert not shard.group.members["i-id-b"].is_new
    shard.wait(3000)
    assert shard.answers["b"].generation_id == 1
    shard.sync("s", "i-id-b", 1)
    waiting(shard)
    shard.join("c", "i-id-b", instance="i")


def test_static_member_rejoin_record_holds_its_new_timeouts_and_subscription() -> None:
    shard, _ = static_group()
    request = join_group.JoinGroupRequest(
        "g", 7_000, 8_000, "", "i", "consumer", [join_group.JoinGroupRequestProtocol("range", b"fresh")]
    )
    shard.send("b", request, 9)
    row = shard.machine.classic_groups.persisted_groups["g"].members[0]
    assert (row.session_timeout, row.rebalance_timeout, row.subscription) == (7_000, 8_000, b"fresh")
    assert row.assignment == b"mine"


# ---------------------------------------------------------------------- pending requests are answered


def test_shard_unloaded_answers_parked_joins_and_syncs_not_coordinator() -> None:
    shard, members = in_state("preparing")
    shard.apply(shard.machine.handle(shard.now, ShardUnloaded(ErrorCode.NOT_COORDINATOR)))
    answer = shard.answers["leader comes"]
    assert (answer.error_code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, members[0])
    shard, members = in_state("completing")
    shard.sync("waits", members[1], shard.group.generation)
    shard.apply(shard.machine.handle(shard.now, ShardUnloaded(ErrorCode.NOT_COORDINATOR)))
    assert shard.answers["waits"].error_code == ErrorCode.NOT_COORDINATOR


def test_join_and_sync_sent_again_answers_first_rebalance_in_progress() -> None:
    shard, members = in_state("preparing")
    shard.join("again", members[0])
    assert shard.answers["leader comes"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shard.join("follower comes", members[1])
    assert shard.answers["again"].error_code == 0
    shard.sync("once", members[1], shard.group.generation)
    shard.sync("twice", members[1], shard.group.generation)
    assert shard.answers["once"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shard.sync("leader", members[0], shard.group.generation, {members[1]: b"share"})
    assert shard.answers["twice"].assignment == b"share"


@pytest.mark.parametrize(
    ("version", "instance", "stays"),
    [(3, None, False), (3, "i", True), (9, "i", True)],
)
def test_disconnect_during_join_removes_dynamic_member_without_known_id(
    version: int, instance: str | None, stays: bool
) -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    shard.join("other", version=3)
    shard.join("a", version=version, instance=instance)
    shard.apply(shard.machine.handle(shard.now, RequestDisconnected("g", "a")))
    assert (len(shard.group.members) == 2) is stays
    assert "other" not in shard.answers


def test_disconnect_during_join_keeps_member_with_known_id() -> None:
    shard, members = in_state("preparing")
    fresh = shard.enter("new")
    for pending in ("new", "leader comes", "nobody"):
        shard.apply(shard.machine.handle(shard.now, RequestDisconnected("g", pending)))
    shard.apply(shard.machine.handle(shard.now, RequestDisconnected("other group", "new")))
    assert set(shard.group.members) == {*members, fresh}
    shard.join("follower comes", members[1])
    assert shard.group.state is ClassicGroupState.COMPLETING_REBALANCE


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
    shard = GroupShardFixture(initial_rebalance_delay_ms=delay)

    def join(pending: str) -> None:
        protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
        shard.send(pending, join_group.JoinGroupRequest("g", 10_000, rebalance, "", None, "consumer", protocols), 3)

    join("first")
    for number, at in enumerate(joins_at):
        shard.wait(at - shard.now)
        join(f"next-{number}")
    shard.wait(ends_at - shard.now - 1)
    assert "first" not in shard.answers
    shard.wait(1)
    assert shard.answers["first"].generation_id == 1, "G tryCompleteInitialRebalanceElseSchedule"
    assert len(shard.answers["first"].members) == 1 + len(joins_at)


def test_initial_rebalance_pending_member_expiry_completes_join() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=60_000)
    shard.join("a?")
    shard.join("b", version=3)
    shard.wait(10_001)
    assert shard.answers["b"].generation_id == 1, "G removePendingMemberAndUpdateClassicGroup"


def test_initial_rebalance_pending_member_leave_does_not_complete_join() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=60_000)
    promised = shard.join("a?").member_id
    shard.join("b", version=3)
    leave(shard, [leave_group.MemberIdentity(promised)])
    assert "b" not in shard.answers, "G maybeCompleteJoinPhase"


def test_new_member_in_join_has_five_minute_timeout() -> None:
    shard, members = in_state("preparing")
    shard.enter("new")
    for _ in range(4):
        shard.wait(7_400)
        shard.beat(members[1], 2)
    assert "new" not in shard.answers
    shard.wait(1_000)
    assert shard.answers["new"].error_code == 0, "the rebalance timeout is over, its member is in"


# ---------------------------------------------------------------------- standing up


def test_shard_loaded_restores_classic_groups_in_slices() -> None:
    shard, members = stable(2)
    value = shard.machine.classic_groups.persisted_groups["g"]
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
    shard, members = stable(1)
    value = shard.machine.classic_groups.persisted_groups["g"]
    value.members[0].rebalance_timeout = -1
    again = GroupShardFixture()
    again.machine.classic_groups.persisted_groups["g"] = value
    again.apply(again.machine.handle(0, ShardLoaded()))
    assert again.group.members[members[0]].rebalance_timeout_ms == 10_000
