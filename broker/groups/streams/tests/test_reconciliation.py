"""Reconciliation of a streams group member with its target assignment (C-243), case by case."""

from __future__ import annotations

import pytest

from ottla.broker.groups.streams.reconciliation import StreamsMemberTarget, check_member_state, reconcile
from ottla.broker.groups.streams.streams_group import (
    EMPTY_TASKS,
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
    TasksTuple,
    TasksTupleWithEpochs,
)
from ottla.wire.errors import ErrorCode, ProtocolError

S, R, L = StreamsMemberState.STABLE, StreamsMemberState.UNREVOKED_TASKS, StreamsMemberState.UNRELEASED_TASKS
F = frozenset


def active(*numbers: int) -> TasksTuple:
    return TasksTuple({"0": F(numbers)} if numbers else {})


def held(*numbers: int, since: int = 1) -> TasksTupleWithEpochs:
    return TasksTupleWithEpochs({"0": dict.fromkeys(numbers, since)} if numbers else {})


def group(*others: StreamsGroupMember) -> StreamsGroup:
    out = StreamsGroup("g")
    for member in others:
        out.update(member)
    return out


def me(epoch: int = 5, **fields: object) -> StreamsGroupMember:
    return StreamsGroupMember("m", epoch=epoch, previous_epoch=4, process_id="p", **fields)  # type: ignore[arg-type]


OTHER = StreamsGroupMember("o", process_id="q", assigned=held(7))
STANDBY = StreamsGroupMember("s", process_id="p", assigned=TasksTupleWithEpochs({}, {"0": F({7})}))


@pytest.mark.parametrize(
    ("member", "target", "owned", "others", "state", "epoch", "has", "gives"),
    [
        (me(9), active(1), None, (), S, 9, (), ()),  # already reconciled
        (me(), active(1), None, (), S, 9, (1,), ()),
        (me(assigned=held(1, 2)), active(1), None, (), R, 5, (1,), (2,)),
        (me(assigned=held(1, 2)), active(1), active(1, 2), (), R, 5, (1,), (2,)),
        (me(assigned=held(1, 2)), active(1, 3), active(1), (), S, 9, (1, 3), ()),  # already revoked
        (me(), active(1, 7), EMPTY_TASKS, (OTHER,), L, 9, (1,), ()),
        (me(), active(7), EMPTY_TASKS, (OTHER,), L, 9, (), ()),
        (me(), active(7), EMPTY_TASKS, (STANDBY,), L, 9, (), ()),  # a standby task of its own process
        (me(state=R, revoking=held(2)), active(1), None, (), R, 5, (), (2,)),
        (me(state=R, revoking=held(2)), active(1), active(2), (), R, 5, (), (2,)),
        (me(state=R, revoking=held(2)), active(1), EMPTY_TASKS, (), S, 9, (1,), ()),
        (me(state=R, assigned=held(3), revoking=held(2)), active(1), active(3), (), R, 6, (), (3,)),  # one step further
        (me(9, state=L), active(7), None, (OTHER,), L, 9, (), ()),
        (me(9, state=L), active(7), None, (), S, 9, (7,), ()),
    ],
)
def test_reconcile_member_returns_next_state(
    member: StreamsGroupMember,
    target: TasksTuple,
    owned: TasksTuple | None,
    others: tuple[StreamsGroupMember, ...],
    state: StreamsMemberState,
    epoch: int,
    has: tuple[int, ...],
    gives: tuple[int, ...],
) -> None:
    moved = reconcile(member, StreamsMemberTarget(9, target, owned), group(member, *others))
    assert (moved.state, moved.epoch) == (state, epoch)
    assert tuple(moved.assigned.active.get("0", ())) == has
    assert tuple(moved.revoking.active.get("0", ())) == gives


def test_reconcile_keeps_epoch_of_kept_tasks_and_stamps_new_ones() -> None:
    moved = reconcile(me(assigned=held(1, since=3)), StreamsMemberTarget(9, active(1, 2), active(1)), group())
    assert moved.assigned.active == {"0": {1: 3, 2: 9}}
    assert moved.previous_epoch == 5


@pytest.mark.parametrize(
    ("others", "free"),
    [
        ((), True),
        ((OTHER,), True),  # active elsewhere: another process may have a standby
        ((StreamsGroupMember("a", process_id="p", assigned=held(7)),), False),
        ((STANDBY,), False),
        ((StreamsGroupMember("s", process_id="q", assigned=TasksTupleWithEpochs({}, {"0": F({7})})),), True),
    ],
)
def test_standby_task_is_assigned_when_own_process_has_no_role_in_it(
    others: tuple[StreamsGroupMember, ...], free: bool
) -> None:
    moved = reconcile(me(), StreamsMemberTarget(9, TasksTuple({}, {"0": F({7})}), EMPTY_TASKS), group(*others))
    assert moved.assigned.standby == ({"0": F({7})} if free else {})
    assert moved.state is (S if free else L)


def test_member_in_unknown_state_must_rejoin_without_tasks() -> None:
    strange = me(state=StreamsMemberState(99))
    for owned in (None, active(1)):
        with pytest.raises(ProtocolError) as refused:
            check_member_state(strange, owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    check_member_state(strange, EMPTY_TASKS)
    check_member_state(me(), None)
    moved = reconcile(strange, StreamsMemberTarget(9, active(1), EMPTY_TASKS), group())
    assert (moved.state, moved.epoch) == (S, 9)


def test_process_id_of_reassigned_task_is_kept_when_old_owner_releases() -> None:
    """``StreamsGroup.removeTaskProcessIds`` takes away only its own."""
    both = group(OTHER)
    both.update(StreamsGroupMember("n", process_id="p", assigned=held(7)))
    both.update(StreamsGroupMember("o", process_id="q"))
    assert both.active_process_ids["0"] == {7: "p"}
    both.remove("n")
    assert both.active_process_ids["0"] == {}
