"""Timeline of rebalances: joined and left members with reasons, durations, and bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_CONSOLE_GROUPS, MAX_CONSOLE_REBALANCE_MEMBERS, MAX_CONSOLE_REBALANCES
from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.coordinator.shard_state import CoordinatorState
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.console.rebalance_history import RebalanceHistory
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


class Group:
    """Group with the attributes that all types have."""

    def __init__(self, group_id: str, epoch: int = 0, members: str = "", state: str = "Stable") -> None:
        self.id = group_id
        self.change(epoch, members, state)

    def change(self, epoch: int, members: str, state: str = "Stable") -> None:
        self.epoch = epoch
        self.state = state
        self.members = {name: SimpleNamespace(id=name, client_id=f"client-{name}") for name in members.split()}


class Follower:
    """History of a node with one shard, whose groups and clock the test sets."""

    def __init__(self, *groups: Group) -> None:
        self.now_ms = 1_000_000
        settings: Any = SimpleNamespace()
        self.machine = GroupStateMachine(settings)
        self.groups: dict[str, Any] = self.machine.classic_groups.groups
        self.groups.update({group.id: group for group in groups})
        self.shard = SimpleNamespace(machine=self.machine, state=CoordinatorState.ACTIVE)
        env: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        coordinator: Any = [self.shard]
        self.history = RebalanceHistory(env, coordinator)
        self.sample()

    def sample(self, after_ms: int = 1000) -> None:
        self.now_ms += after_ms
        for _ in self.history.sample():
            pass


def test_group_that_exists_at_the_start_has_no_rebalance() -> None:
    follower = Follower(Group("g", 7, "a b"))
    follower.sample()
    assert follower.history.find("g") == []


def test_new_group_has_a_rebalance_with_its_members() -> None:
    follower = Follower()
    follower.groups["g"] = Group("g", 1, "a b")
    follower.sample()
    (found,) = follower.history.find("g")
    assert ([member.client_id for member in found.joined], found.left, found.epoch) == (["client-a", "client-b"], [], 1)
    assert found.duration_ms == 0


def test_rebalance_lasts_until_the_group_is_stable() -> None:
    group = Group("g", 7, "a")
    follower = Follower(group)
    group.change(8, "a b", "Reconciling")
    follower.sample()
    assert follower.history.find("g")[0].duration_ms is None
    group.change(9, "a b c", "Reconciling")
    follower.sample()
    group.change(9, "a b c")
    follower.sample()
    (found,) = follower.history.find("g")
    assert (found.epoch, found.duration_ms, found.joined_count) == (9, 2000, 2)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (None, "left"),
        (TimerExpired(("consumer-session", "g", "b")), "session timeout"),
        (TimerExpired(("session", "g", "b")), "session timeout"),
        (TimerExpired(("consumer-rebalance", "g", "b")), "rebalance timeout"),
        (TimerExpired(("join", "g")), "rebalance timeout"),
        (TimerExpired(("session", "g", "a")), "left"),
        (TimerExpired(("session", "other", "b")), "left"),
        (TimerExpired(("expire",)), "left"),
        (
            GroupRequest(None, LeaveGroupRequest("g", members=[MemberIdentity("b", reason="closed")]), 5, "", ""),
            "left: closed",
        ),
    ],
)
def test_member_that_left_has_the_reason(event: Any, reason: str) -> None:
    group = Group("g", 7, "a b")
    follower = Follower(group)
    assert follower.machine.event_observer is not None
    if event is not None:
        follower.machine.event_observer(event)
    group.change(8, "a")
    follower.sample()
    (found,) = follower.history.find("g")
    assert [(member.id, member.reason) for member in found.left] == [("b", reason)]


def test_reason_is_forgotten_after_a_sample() -> None:
    group = Group("g", 7, "a b")
    follower = Follower(group)
    follower.history.on_event(TimerExpired(("session", "g", "b")))
    follower.sample()
    group.change(8, "a")
    follower.sample()
    assert follower.history.find("g")[0].left[0].reason == "left"


def test_change_without_members_has_another_cause() -> None:
    group = Group("g", 7, "a")
    follower = Follower(group)
    group.change(8, "a")
    follower.sample()
    assert follower.history.find("g")[0].has_other_cause


def test_memory_is_bounded() -> None:
    group = Group("g", 0, "")
    follower = Follower(group)
    for epoch in range(1, MAX_CONSOLE_REBALANCES + 10):
        group.change(epoch, " ".join(f"m{epoch}-{number}" for number in range(MAX_CONSOLE_REBALANCE_MEMBERS + 5)))
        follower.sample()
    found = follower.history.find("g")
    assert (len(found), found[0].epoch) == (MAX_CONSOLE_REBALANCES, MAX_CONSOLE_REBALANCES + 9)
    assert (len(found[0].joined), found[0].joined_count) == (MAX_CONSOLE_REBALANCE_MEMBERS, 25)
    assert (len(found[0].left), found[0].left_count) == (MAX_CONSOLE_REBALANCE_MEMBERS, 25)
    for number in range(MAX_CONSOLE_GROUPS):
        follower.groups[f"g{number}"] = Group(f"g{number}", 1, "a")
    follower.sample()
    assert follower.history.find(f"g{MAX_CONSOLE_GROUPS - 1}") == []
    follower.groups.clear()
    follower.sample()
    follower.sample()
    assert follower.history.find("g") == []


def test_reasons_of_a_request_are_bounded_in_number_and_size() -> None:
    follower = Follower()
    many = [MemberIdentity(f"m{number}", None, "why") for number in range(3_000)]
    large = [MemberIdentity(f"{number}" * 2_000, None, "why") for number in range(3)]
    for members in (large, many):
        event = GroupRequest(None, LeaveGroupRequest("g", members=members), 5, "c", "h")
        follower.history.on_event(event)
    reasons = follower.history._reasons
    assert 0 < len(reasons) <= 1_000
    assert max(len(member) for _, member in reasons) < 1_000


def test_long_names_of_members_are_cut() -> None:
    name = "n" * 30_000
    group = Group("g", 1, name)
    follower = Follower()
    follower.groups["g"] = group
    follower.sample()
    group.change(2, "")
    follower.sample()
    left, joined = follower.history.find("g")
    for member in (*joined.joined, *left.left):
        assert (len(member.id), len(member.client_id)) == (200, 200)
