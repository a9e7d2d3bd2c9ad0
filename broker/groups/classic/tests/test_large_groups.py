"""Very large classic groups: operations on all members run in slices and reach every member."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import trio

from ottla.broker.coordinator.events import ShardLoaded, ShardUnloaded, TimerExpired, WriteResult
from ottla.broker.groups.classic.classic_group import ClassicGroupState, GroupRequest, subscribed_topics
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.classic.tests.test_group_rules import subscription
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.state_machine import DeleteOffsets, TopicMetadataChanged
from ottla.broker.groups.tests.test_expiration import commit
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    ParkRequest,
    RegisterRuntime,
    RegisterStateMachine,
    start_leading,
    with_runtime,
)
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.state_machine import RECORDS_PER_STEP, Effects, RequestReply
from ottla.wire.messages import leave_group, sync_group

MANY = 2 * RECORDS_PER_STEP + 1
JOIN_IS_OVER = TimerExpired(("join", "g"))


def joined_group(count: int = MANY) -> tuple[GroupShardFixture, list[str]]:
    """Return a group of ``MANY`` joined members before its first generation."""
    fixture = GroupShardFixture(initial_rebalance_delay_ms=3000)
    for number in range(count):
        fixture.join(f"join-{number}", version=3)
    fixture.apply(fixture.machine.handle(fixture.now, JOIN_IS_OVER))  # they joined meanwhile: the join waits once more
    return fixture, list(fixture.group.members)


def slices(fx: GroupEffects) -> list[GroupEffects]:
    return [part for part in chain([fx], fx.continuation or ()) if part.replies or part.records or part.timers]


def syncing_group(count: int = MANY) -> tuple[GroupShardFixture, list[str]]:
    """Return a group of ``MANY`` members of which all but the leader wait for the assignment."""
    fixture, members = joined_group(count)
    fixture.apply(fixture.machine.handle(fixture.now, JOIN_IS_OVER))
    for member in members[1:]:
        fixture.sync(f"sync-{member}", member, 1)
    return fixture, members


def sync_of_leader(fixture: GroupShardFixture, members: list[str]) -> Any:
    shares = [sync_group.SyncGroupRequestAssignment(m, m.encode()) for m in members]
    request = sync_group.SyncGroupRequest("g", 1, members[0], None, "consumer", "range", shares)
    return fixture.machine.handle(fixture.now, GroupRequest("leader", request, 5, "c", "h")).on_commit_outcome


def test_large_group_completes_join_in_slices_answering_each_member_once() -> None:
    fixture, members = joined_group()
    parts = slices(fixture.machine.handle(fixture.now, JOIN_IS_OVER))
    answers = [reply for part in parts for reply in part.replies]
    assert max(len(part.replies) for part in parts) == RECORDS_PER_STEP
    assert sorted(r.message.member_id for r in answers) == sorted(members)
    assert {r.message.generation_id for r in answers} == {1}
    assert [len(r.message.members) for r in answers if r.message.members] == [MANY], "the leader's"
    assert fixture.group.state is ClassicGroupState.COMPLETING_REBALANCE
    assert len(fixture.group.pending_sync_members) == MANY


def test_small_group_completes_join_at_once() -> None:
    fixture, _ = joined_group(RECORDS_PER_STEP)
    fx = fixture.machine.handle(fixture.now, JOIN_IS_OVER)
    assert (len(fx.replies), fx.continuation) == (RECORDS_PER_STEP, None)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_shard_unloaded_between_slices_answers_remaining_members(done: int) -> None:
    fixture, _ = joined_group()
    fx = fixture.machine.handle(fixture.now, JOIN_IS_OVER)
    assert fx.continuation is not None
    answered = [r for _ in range(done) for r in next(fx.continuation).replies]
    answered += fixture.machine.handle(fixture.now, ShardUnloaded(E.NOT_COORDINATOR)).replies
    assert len(answered) == len({r.pending_request for r in answered}) == MANY


def test_sync_group_distributes_assignment_of_large_group_in_slices() -> None:
    fixture, members = syncing_group()
    parts = slices(fixture.machine.handle(fixture.now, WriteResult(sync_of_leader(fixture, members), E.NONE)))
    assert len(parts) == 3
    given = {r.pending_request: r.message.assignment for part in parts for r in part.replies}
    assert given == {"leader": members[0].encode()} | {f"sync-{m}": m.encode() for m in members[1:]}
    assert fixture.group.state is ClassicGroupState.STABLE


def test_sync_group_assignment_refused_answers_large_group_in_slices() -> None:
    fixture, members = syncing_group()
    parts = slices(
        fixture.machine.handle(fixture.now, WriteResult(sync_of_leader(fixture, members), E.NOT_COORDINATOR))
    )
    reported = [r.message.error_code for part in parts for r in part.replies]
    assert reported == [E.NOT_COORDINATOR] * MANY
    assert fixture.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_sync_timeout_removes_members_of_large_group_in_slices() -> None:
    fixture, _ = joined_group()
    fixture.apply(fixture.machine.handle(fixture.now, JOIN_IS_OVER))
    parts = slices(fixture.machine.handle(fixture.now, TimerExpired(("sync", "g"))))
    assert max(len(part.timers) for part in parts) <= RECORDS_PER_STEP + 3
    assert fixture.group.state is ClassicGroupState.EMPTY
    assert [record.value.generation for part in parts for record in part.records] == [2]  # type: ignore[union-attr]


def test_rebalance_timeout_removes_members_of_large_group_in_slices() -> None:
    fixture, members = syncing_group()
    fixture.apply(fixture.machine.handle(fixture.now, WriteResult(sync_of_leader(fixture, members), E.NONE)))
    fixture.join("again", members[0], version=3)
    parts = slices(fixture.machine.handle(fixture.now, JOIN_IS_OVER))
    assert max(len(part.timers) for part in parts) <= RECORDS_PER_STEP + 3
    assert list(fixture.group.members) == members[:1]


@pytest.mark.parametrize("version", [3, 5])
def test_leave_group_of_many_members_runs_in_slices_with_one_response(version: int) -> None:
    fixture, members = syncing_group()
    wanted = [leave_group.MemberIdentity(m) for m in [*members, "stranger"]]
    fx = fixture.machine.handle(
        fixture.now, GroupRequest("leave", leave_group.LeaveGroupRequest("g", "", wanted), version, "c", "h")
    )
    [reply] = fx.replies
    parts = slices(fx)
    assert max(len(part.replies) for part in parts) <= RECORDS_PER_STEP
    assert [row.error_code for row in reply.message.members] == [E.NONE] * MANY + [E.UNKNOWN_MEMBER_ID]
    assert fixture.group.state is ClassicGroupState.EMPTY


def test_leave_group_before_v3_of_large_group_removes_one_member() -> None:
    fixture, members = syncing_group()
    fx = fixture.machine.handle(
        fixture.now, GroupRequest("leave", leave_group.LeaveGroupRequest("g", members[0]), 2, "c", "h")
    )
    fixture.apply(fx)
    assert (fixture.answers["leave"].error_code, fixture.answers["leave"].members) == (E.NONE, [])
    assert len(fixture.group.members) == MANY - 1
    assert fixture.answers[f"sync-{members[1]}"].error_code == E.REBALANCE_IN_PROGRESS


def test_subscribed_topics_of_large_group_are_collected_per_member() -> None:
    fixture, _ = syncing_group()
    for member in fixture.group.members.values():
        fixture.group.set_protocols(member, [("range", subscription("t"))])
    assert sum(1 for _ in subscribed_topics(fixture.group)) == MANY
    fx = fixture.machine.handle(fixture.now, DeleteOffsets("delete", "g", [("t", 0)]))
    assert fx.continuation is not None
    fixture.apply(fx)
    assert fixture.answers["delete"] == {"t"}


@pytest.mark.parametrize("topics", [1, 3])
def test_delete_offsets_of_deleted_topics_costs_the_smaller_set(topics: int) -> None:
    fixture = GroupShardFixture()
    for number in range(topics):
        commit(fixture, f"t{number}")
    commit(fixture, "kept")

    class Counted(dict[str, bytes]):
        looks = 0

        def __contains__(self, key: object) -> bool:
            Counted.looks += 1
            return super().__contains__(key)

    gone = Counted({f"t{n}": bytes(16) for n in range(1000)})
    Counted.looks = 0
    fixture.apply(
        fixture.machine.handle(fixture.now, TopicMetadataChanged(MetadataImage(), frozenset(gone), False, gone))
    )
    assert set(fixture.machine.offsets.group_offsets("g")) == {"kept"}
    assert 0 < Counted.looks <= topics + 1


class ParkedRequestsMachine(RegisterStateMachine):
    """Machine that answers every parked request, one per slice."""

    def handle(self, now_ms: int, event: Any) -> Effects[Any]:
        if isinstance(event, WriteResult | ShardLoaded | ShardUnloaded) or not isinstance(event, str):
            return super().handle(now_ms, event)
        return Effects(continuation=(Effects(replies=[RequestReply(pending, event)]) for pending in self.parked))


def test_replies_in_slices_are_sent_slice_by_slice() -> None:
    runtime_fixture = RegisterRuntime(followed=False)
    runtime_fixture.runtime._machine_of = ParkedRequestsMachine
    start_leading(runtime_fixture)

    async def scenario() -> None:
        tickets = [runtime_fixture.runtime.submit_to_partition(0, ParkRequest) for _ in range(3)]
        runtime_fixture.runtime.submit_to_all("go")
        seen = []
        while tickets[-1].answer is None:
            await trio.lowlevel.checkpoint()
            seen.append(sum(t.answer is not None for t in tickets))
        assert any(0 < count < 3 for count in seen)

    with_runtime(runtime_fixture, scenario)
