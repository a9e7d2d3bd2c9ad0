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
    stage: GroupShardFixture,
    topic: str = "t",
    *,
    group: str = "g",
    member: str = "",
    generation: int = -1,
    keep_ms: int = -1,
) -> None:
    new = [OffsetToCommit(topic, bytes(16), 0, 5, -1, "")]
    ticket = f"commit-{next(_tickets)}"
    stage.apply(
        stage.machine.handle(stage.now, CommitOffsets(ticket, group, member, None, generation, keep_ms, new, 9))
    )
    assert stage.answers[ticket] == 0


def loaded(stage: GroupShardFixture) -> GroupShardFixture:
    stage.apply(stage.machine.handle(stage.now, ShardLoaded()))
    return stage


def positions(stage: GroupShardFixture, group: str = "g") -> set[str]:
    return set(stage.machine.offsets.group_offsets(group))


@pytest.mark.behaviour("P-91")
def test_offset_of_simple_consumer_expires_seven_days_after_commit() -> None:
    stage = loaded(GroupShardFixture())
    commit(stage)
    stage.wait(7 * DAY_MS - 1)
    assert positions(stage) == {"t"}
    stage.wait(600_001)
    assert positions(stage) == set()
    assert stage.log[-1][1] is None, "a tombstone"


@pytest.mark.behaviour("P-91")
def test_group_keeps_offsets_while_it_has_members_and_seven_days_longer() -> None:
    stage, members = stable(1)
    loaded(stage)
    commit(stage, member=members[0], generation=1)
    stage.group.members[members[0]].session_timeout_ms = DAY_MS
    for _ in range(18):
        stage.beat(members[0], 1)
        stage.wait(DAY_MS // 2)
    assert positions(stage) == {"t"}, "what it reads cannot be told: it keeps everything"
    stage.wait(DAY_MS // 2)  # the session expires: the group is empty from here on
    assert stage.group.state is ClassicGroupState.EMPTY
    stage.wait(7 * DAY_MS - 1)
    assert positions(stage) == {"t"}
    stage.wait(SWEEP_MS + 1)
    assert positions(stage) == set()


@pytest.mark.behaviour("P-91")
def test_stable_group_expires_offsets_of_unsubscribed_topics() -> None:
    stage, members = stable(1)
    loaded(stage)
    group = stage.group
    group.set_protocols(group.members[members[0]], [("range", _subscription("t"))])
    commit(stage, "t", member=members[0], generation=1)
    commit(stage, "other", member=members[0], generation=1)
    group.members[members[0]].session_timeout_ms = 30 * DAY_MS
    stage.beat(members[0], 1)
    stage.wait(8 * DAY_MS)
    assert positions(stage) == {"t"}


@pytest.mark.behaviour("P-91")
def test_retention_of_empty_group_counts_from_when_it_became_empty() -> None:
    stage, members = stable(1)
    loaded(stage)
    commit(stage, member=members[0], generation=1)
    stage.wait(5_000)
    stage.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5)
    stage.wait(7 * DAY_MS - 600_000)
    assert positions(stage) == {"t"}
    assert "g" in stage.machine.classic_groups.groups
    stage.wait(2 * 600_000)
    assert positions(stage) == set()
    assert "g" not in stage.machine.classic_groups.groups, "it goes with its last position"


def test_group_without_offsets_is_removed_at_next_check() -> None:
    stage, members = stable(1)
    loaded(stage)
    stage.wait(1_000)
    stage.send("leave", leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity(members[0])]), 5)
    stage.wait(600_000)
    assert "g" not in stage.machine.classic_groups.groups


def test_retention_time_of_commit_overrides_broker_retention() -> None:
    stage = loaded(GroupShardFixture())
    commit(stage, keep_ms=1_000_000)
    stage.wait(900_000)
    assert positions(stage) == {"t"}
    stage.wait(300_001)
    assert positions(stage) == set()


def test_expiration_check_runs_in_slices_also_without_expired_offsets() -> None:
    stage = loaded(GroupShardFixture())
    new = [OffsetToCommit("t", bytes(16), n, 5, -1, "") for n in range(2000)]
    for group in ("a", "b"):
        stage.apply(stage.machine.handle(0, CommitOffsets(group, group, "", None, -1, -1, new, 9)))
    early = stage.machine.handle(DAY_MS, TimerExpired(("expire",)))
    assert early.records == []
    assert [part.records for part in early.continuation or ()] == [[]] * 8
    late = stage.machine.handle(8 * DAY_MS, TimerExpired(("expire",)))
    stage.apply(late)
    assert stage.machine.offsets.groups() == []
    assert stage.machine.classic_groups.groups == {}


def _subscription(*topics: str) -> bytes:
    return b"\x00\x01" + compiler.encode(ConsumerProtocolSubscription(list(topics)), 1)
