"""Expiration of offsets and empty groups, in virtual time."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.events import ShardLoaded, TimerExpired
from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture, stable
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.wire.codec import compiler
from ottla.wire.messages import leave_group
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

DAY_MS = 24 * 3600 * 1000
SWEEP_MS = 600_000  # interval between two checks
_tickets = iter(range(10**6))


def commit(
    shard: GroupShardFixture,
    topic: str = "t",
    *,
    group: str = "g",
    member: str = "",
    generation: int = -1,
    keep_ms: int = -1,
) -> None:
    new = [OffsetToCommit(topic, bytes(16), 0, 5, -1, "")]
    pending = f"commit-{next(_tickets)}"
    shard.apply(
        shard.machine.handle(shard.now, CommitOffsets(pending, group, member, None, generation, keep_ms, new, 9))
    )
    assert shard.answers[pending] == 0


def loaded(shard: GroupShardFixture) -> GroupShardFixture:
    shard.apply(shard.machine.handle(shard.now, ShardLoaded()))
    return shard


def positions(shard: GroupShardFixture, group: str = "g") -> set[str]:
    return set(shard.machine.offsets.group_offsets(group))


@pytest.mark.behaviour("P-91")
def test_offset_of_simple_consumer_expires_seven_days_after_commit() -> None:
    shard = loaded(GroupShardFixture())
    commit(shard)
    shard.wait(7 * DAY_MS - 1)
    assert positions(shard) == {"t"}
    shard.wait(600_001)
    assert positions(shard) == set()
    assert shard.log[-1][1] is None, "a tombstone"


@pytest.mark.behaviour("P-91")
def test_group_keeps_offsets_while_it_has_members_and_seven_days_longer() -> None:
    shard, members = stable(1)
    loaded(shard)
    commit(shard, member=members[0], generation=1)
    shard.group.members[members[0]].session_timeout_ms = DAY_MS
    for _ in range(18):
        shard.beat(members[0], 1)
        shard.wait(DAY_MS // 2)
    assert positions(shard) == {"t"}, "what it reads cannot be told: it keeps everything"
    shard.wait(DAY_MS // 2)  # the session expires: the group is empty from here on
    assert shard.group.state is ClassicGroupState.EMPTY
    shard.wait(7 * DAY_MS - 1)
    assert positions(shard) == {"t"}
    shard.wait(SWEEP_MS + 1)
    assert positions(shard) == set()


@pytest.mark.behaviour("P-91")
def test_stable_group_expires_offsets_of_unsubscribed_topics() -> None:
    shard, members = stable(1)
    loaded(shard)
    group = shard.group
    group.set_protocols(group.members[members[0]], [("range", _subscription("t"))])
    commit(shard, "t", member=members[0], generation=1)
    commit(shard, "other", member=members[0], generation=1)
    group.members[members[0]].session_timeout_ms = 30 * DAY_MS
    shard.beat(members[0], 1)
    shard.wait(8 * DAY_MS)
    assert positions(shard) == {"t"}


@pytest.mark.behaviour("P-91")
def test_retention_of_empty_group_counts_from_when_it_became_empty() -> None:
    shard, members = stable(1)
    loaded(shard)
    commit(shard, member=members[0], generation=1)
    shard.wait(5_000)
    shard.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5)
    shard.wait(7 * DAY_MS - 600_000)
    assert positions(shard) == {"t"}
    assert "g" in shard.machine.classic_groups.groups
    shard.wait(2 * 600_000)
    assert positions(shard) == set()
    assert "g" not in shard.machine.classic_groups.groups, "it goes with its last position"


def test_group_without_offsets_is_removed_at_next_check() -> None:
    shard, members = stable(1)
    loaded(shard)
    shard.wait(1_000)
    shard.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5)
    shard.wait(600_000)
    assert "g" not in shard.machine.classic_groups.groups


def test_retention_time_of_commit_overrides_broker_retention() -> None:
    shard = loaded(GroupShardFixture())
    commit(shard, keep_ms=1_000_000)
    shard.wait(900_000)
    assert positions(shard) == {"t"}
    shard.wait(300_001)
    assert positions(shard) == set()


def test_expiration_check_runs_in_slices_also_without_expired_offsets() -> None:
    shard = loaded(GroupShardFixture())
    new = [OffsetToCommit("t", bytes(16), n, 5, -1, "") for n in range(2000)]
    for group in ("a", "b"):
        shard.apply(shard.machine.handle(0, CommitOffsets(group, group, "", None, -1, -1, new, 9)))
    early = shard.machine.handle(DAY_MS, TimerExpired(("expire",)))
    assert early.records == []
    assert [part.records for part in early.continuation or ()] == [[]] * 8
    late = shard.machine.handle(8 * DAY_MS, TimerExpired(("expire",)))
    shard.apply(late)
    assert shard.machine.offsets.groups() == []
    assert shard.machine.classic_groups.groups == {}


def _subscription(*topics: str) -> bytes:
    return b"\x00\x01" + compiler.encode(ConsumerProtocolSubscription(list(topics)), 1)
