"""Timers of classic groups, and the state a group drops with a member.

G is ``GroupMetadataManager.java``, C ``ClassicGroup.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.coordinator.events import ShardLoaded, TimerExpired
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState, subscribed_topics
from ottla.broker.groups.classic.tests.test_group_rules import subscription
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture, stable
from ottla.broker.groups.committed_offsets import OffsetAndMetadata, OffsetToCommit
from ottla.broker.groups.expiration import _is_expired
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.jobs.state_machine import CancelTimer
from ottla.wire.codec.lazy_array import ELEMENTS_PER_YIELD
from ottla.wire.messages import leave_group

MINUTES_MS = 60_000


def armed(shard: GroupShardFixture) -> dict[Any, int]:
    """Return the deadline of each armed timer."""
    return {key: at for at, count, key in shard._heap if shard._armed.get(key) == count}


def test_first_expiration_check_runs_one_interval_after_loading() -> None:
    shard = GroupShardFixture(expiry_every_ms=600_000)
    shard.now = 5_000
    shard.apply(shard.machine.handle(shard.now, ShardLoaded()))
    assert armed(shard) == {("expire",): 605_000}
    shard.wait(600_000)
    assert armed(shard) == {("expire",): 1_205_000}


def test_new_member_in_join_has_five_minute_session() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    member = shard.enter("a")
    assert armed(shard)["session", "g", member] == 5 * MINUTES_MS, "CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS"


@pytest.mark.parametrize(("fields", "taken"), [(-1, 10_000), (0, 0), (1, 1)])
def test_join_group_v0_rebalance_timeout_defaults_to_session_timeout(fields: int, taken: int) -> None:
    shard = GroupShardFixture()
    shard.join("a", version=3, rebalance_ms=fields)
    assert shard.group.rebalance_timeout_ms == taken, "JoinGroup v0 has one timeout for both"


def test_new_generation_arms_sync_timer_and_cancels_join_timer() -> None:
    shard, members = stable(2)
    for member in members:
        shard.join(f"again {member}", member)
    assert ("join", "g") not in armed(shard)
    assert armed(shard)["sync", "g"] == shard.now + 30_000
    assert set(shard.group.pending_sync_members) == set(members)
    fx = shard.machine.handle(shard.now, TimerExpired(("join", "g")))
    assert fx.timers == [], "one that fires all the same changes nothing"


def test_all_members_synced_cancels_sync_timer() -> None:
    shard, members = stable(2)
    for member in members:
        shard.join(f"again {member}", member)
    generation = shard.group.generation
    shard.sync("follower", members[1], generation)
    assert ("sync", "g") in armed(shard), "the leader is missing"
    shard.sync("leader", members[0], generation, {})
    assert ("sync", "g") not in armed(shard), "G removePendingSyncMember"


def test_new_rebalance_cancels_sync_timer() -> None:
    shard, members = stable(2)
    for member in members:
        shard.join(f"again {member}", member)
    shard.join("once more", members[1], names=("range", "other"))
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert ("sync", "g") not in armed(shard), "G prepareRebalance"
    assert shard.group.pending_sync_members == {}, "C: initNextGeneration begins with all of them again"
    assert armed(shard)["join", "g"] == shard.now + 30_000


def test_removed_member_leaves_no_session_timer_and_no_pending_sync() -> None:
    shard, members = stable(2)
    for member in members:
        shard.join(f"again {member}", member)
    shard.group.remove(members[1])
    assert set(shard.group.pending_sync_members) == {members[0]}, "C remove"
    shard, members = stable(2)
    shard.wait(9_000)
    shard.beat(members[0], shard.group.generation)
    shard.wait(2_000)
    assert members[1] not in shard.group.members
    assert ("session", "g", members[1]) not in armed(shard)
    assert ("session", "g", members[0]) in armed(shard)


def test_remove_member_cancels_its_session_timer() -> None:
    shard, (leader, follower) = stable(2)
    fx = rebalance.GroupEffects()
    rebalance.remove_member(shard.group, shard.group.members[follower], fx)
    assert fx.timers == [CancelTimer(("session", "g", follower))]
    assert list(shard.group.members) == [leader]


def test_leave_group_of_pending_member_id_cancels_its_session_timer() -> None:
    shard = GroupShardFixture()
    pending = shard.join("first").member_id
    assert ("session", "g", pending) in armed(shard)
    answer = shard.send("leaves", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(pending)]), 5)
    assert [row.error_code for row in answer.members] == [0]
    assert ("session", "g", pending) not in armed(shard)


def test_static_member_rejoin_cancels_session_of_old_member_id() -> None:
    shard = GroupShardFixture()
    first = shard.join("a", instance="i", version=9)
    shard.sync("s", first.member_id, 1, {})
    second = shard.join("b", instance="i", version=9)
    assert second.member_id != first.member_id
    sessions = {key[2] for key in armed(shard) if key[0] == "session"}
    assert sessions == {second.member_id}


def test_leader_that_rejoins_stays_leader() -> None:
    shard, members = stable(3)
    shard.group.leader = members[2]
    for member in members:
        shard.join(member, member, names=("range", "other"))
    assert shard.group.state is ClassicGroupState.COMPLETING_REBALANCE
    assert shard.group.leader == members[2]


def test_group_without_leader_elects_first_member() -> None:
    shard, members = stable(2)
    shard.group.leader = None
    shard.join("follower", members[1], names=("range", "other"))
    shard.join("leader", members[0])
    assert shard.group.leader == members[0], "the first of its members"
    assert shard.answers["leader"].leader == members[0]


def test_restore_group_keeps_leader_that_is_not_first_member() -> None:
    shard, members = stable(3)
    shard.group.leader = members[1]
    restored = ClassicGroup.from_record_value("g", shard.group.to_record_value())
    assert (list(restored.members), restored.leader) == (members, members[1])


def test_offset_commit_v2_to_v4_with_zero_retention_expires_at_once() -> None:
    shard = GroupShardFixture()
    for pending, retention, expires in (("kept", -1, -1), ("none", 0, 0), ("some", 7, 7)):
        new = [OffsetToCommit(pending, bytes(16), 0, 5, -1, "")]
        shard.apply(shard.machine.handle(shard.now, CommitOffsets(pending, "g", "", None, -1, retention, new, 3)))
        found = shard.machine.offsets.get("g", pending, 0)
        assert found is not None
        assert found.expire_ms == expires, "OffsetCommit v2 to v4"


@pytest.mark.parametrize(
    ("state", "kind", "age_ms", "gone"),
    [
        (ClassicGroupState.EMPTY, "consumer", 999, False),
        (ClassicGroupState.EMPTY, "consumer", 1000, True),
        (ClassicGroupState.STABLE, "consumer", 1000, True),
        (ClassicGroupState.STABLE, "connect", 1000, False),
        (ClassicGroupState.PREPARING_REBALANCE, "consumer", 1000, False),
        (ClassicGroupState.COMPLETING_REBALANCE, "consumer", 1000, False),
        (ClassicGroupState.PREPARING_REBALANCE, None, 1000, True),
    ],
)
def test_offset_expiration_condition_by_group_state_and_type(
    state: ClassicGroupState, kind: str | None, age_ms: int, gone: bool
) -> None:
    group = ClassicGroup("g", state, protocol_type=kind, state_since_ms=50)
    position = OffsetAndMetadata(5, -1, 50, -1, 0, bytes(16), "")
    assert _is_expired(group, position, 1000, 50 + age_ms) is gone


def test_offset_commit_of_simple_consumer_to_group_with_members_is_refused() -> None:
    shard, _ = stable(1)
    for pending, member, generation in (("named", "stranger", -1), ("nameless", "", -1), ("numbered", "", 1)):
        shard.apply(shard.machine.handle(shard.now, CommitOffsets(pending, "g", member, None, generation, -1, [], 9)))
        assert shard.answers[pending] == 25, "UNKNOWN_MEMBER_ID"


def test_subscribed_topics_uses_metadata_of_selected_protocol() -> None:
    shard, (member,) = stable(1)
    shard.group.set_protocols(shard.group.members[member], [("other", subscription("a")), ("range", subscription("b"))])
    read: list[set[str] | None] = []

    def steps() -> Iterator[None]:
        read.append((yield from subscribed_topics(shard.group)))

    assert len(list(steps())) == 1
    assert read == [{"b"}]


def test_subscription_with_very_many_topics_is_decoded_in_slices() -> None:
    shard, (member,) = stable(1)
    names = [f"t-{n}" for n in range(20_000)]
    shard.group.set_protocols(shard.group.members[member], [("range", subscription(*names))])
    read: list[set[str] | None] = []

    def steps() -> Iterator[None]:
        read.append((yield from subscribed_topics(shard.group)))

    assert len(list(steps())) >= len(names) // ELEMENTS_PER_YIELD
    assert read == [set(names)]
