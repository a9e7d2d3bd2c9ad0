"""Reconciliation of a member with its target: it revokes tasks first, then is assigned the free ones.

A task is active in one process at a time, and a process has it in one role. So a new active task is free once no
process has it active and the member's process has it in no role; a new standby or warm-up task once the member's
process has it in no role.

Source: ``CurrentAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ottla.broker.groups.streams.streams_group import (
    EMPTY_TASKS_WITH_EPOCHS,
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
    TasksBySubtopology,
    TasksTuple,
    TasksTupleWithEpochs,
)
from ottla.wire.errors import ErrorCode, ProtocolError

_NO_PROCESSES: set[str] = set()


class StreamsMemberTarget(NamedTuple):
    """Input of a reconciliation: target epoch, target tasks, and the tasks that the member reports (None: omitted)."""

    epoch: int
    target: TasksTuple
    owned: TasksTuple | None


def check_member_state(member: StreamsGroupMember, owned: TasksTuple | None) -> None:
    """Check that the member's state is known, or that the member reports to own no tasks (not None).

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if member.state is StreamsMemberState.UNKNOWN and (owned is None or not owned.is_empty):
        why = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)


def reconcile(member: StreamsGroupMember, goal: StreamsMemberTarget, group: StreamsGroup) -> StreamsGroupMember:
    """Return the member after its next transition towards ``goal``; unchanged while it has not revoked its tasks.

    ``group`` shows which processes have which tasks. `check_member_state` is to be called before.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            return member if member.epoch == goal.epoch else _next_tasks(member, goal, group, member.epoch)
        case StreamsMemberState.UNREVOKED_TASKS:
            if goal.owned is None or goal.owned.overlaps(member.revoking):
                return member
            return _next_tasks(member, goal, group, member.epoch + 1)
        case StreamsMemberState.UNRELEASED_TASKS:
            return _next_tasks(member, goal, group, member.epoch)
        case _:
            return _next_tasks(member, goal, group, goal.epoch)


def _holds(group: StreamsGroup, process_id: str, name: str, number: int) -> bool:
    """Return True if a process has a task as a standby or warm-up task."""
    return any(
        process_id in at.get(name, {}).get(number, _NO_PROCESSES)
        for at in (group.standby_process_ids, group.warmup_process_ids)
    )


class _RoleReconciliation(NamedTuple):
    """Reconciliation of one role: retained, revoked and assignable tasks; ``is_waiting``: a task is not free yet."""

    kept: TasksBySubtopology
    revoked: TasksBySubtopology
    assignable: TasksBySubtopology
    is_waiting: bool


def _reconcile_role(
    had: TasksBySubtopology,
    wanted: TasksBySubtopology,
    member: StreamsGroupMember,
    group: StreamsGroup,
    *,
    active: bool,
) -> _RoleReconciliation:
    stay: dict[str, frozenset[int]] = {}
    to_revoke: dict[str, frozenset[int]] = {}
    take: dict[str, frozenset[int]] = {}
    waits = False
    for name in {**wanted, **had}:
        has, wants = had.get(name, frozenset[int]()), wanted.get(name, frozenset[int]())
        owners = group.active_process_ids.get(name, {})

        def is_free(number: int, name: str = name, owners: dict[int, str] = owners) -> bool:
            owner = owners.get(number)
            taken = owner is not None if active else owner == member.process_id
            return not taken and not _holds(group, member.process_id, name, number)

        new = wants - has
        free = frozenset(number for number in new if is_free(number))
        waits = waits or len(free) < len(new)
        for out, part in ((stay, has & wants), (to_revoke, has - wants), (take, free)):
            if part:
                out[name] = part
    return _RoleReconciliation(stay, to_revoke, take, waits)


def _merge_tasks(some: TasksBySubtopology, more: TasksBySubtopology) -> TasksBySubtopology:
    return {name: some.get(name, frozenset()) | more.get(name, frozenset()) for name in {**some, **more}}


def _next_tasks(
    member: StreamsGroupMember, goal: StreamsMemberTarget, group: StreamsGroup, epoch: int
) -> StreamsGroupMember:
    """Return the member with retained tasks and, unless it must revoke some first, the new tasks that are free.

    It must while it may own a task that is not in its target: its member epoch is ``epoch`` then, else the target's.
    Its state is UNREVOKED_TASKS; else UNRELEASED_TASKS if a new task was not free, or STABLE.
    """
    had, target = member.assigned, goal.target
    active_had = {name: frozenset(since) for name, since in had.active.items()}
    active = _reconcile_role(active_had, target.active, member, group, active=True)
    standby = _reconcile_role(had.standby, target.standby, member, group, active=False)
    warmup = _reconcile_role(had.warmup, target.warmup, member, group, active=False)

    def since(tasks: TasksBySubtopology) -> dict[str, dict[int, int]]:
        return {name: {number: had.active[name][number] for number in tasks[name]} for name in tasks}

    revoking = TasksTupleWithEpochs(since(active.revoked), standby.revoked, warmup.revoked)
    if not revoking.is_empty and (goal.owned is None or goal.owned.overlaps(revoking)):
        return replace(
            member,
            state=StreamsMemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=TasksTupleWithEpochs(since(active.kept), standby.kept, warmup.kept),
            revoking=revoking,
        )
    kept = since(active.kept)
    for name, numbers in active.assignable.items():
        kept.setdefault(name, {}).update(dict.fromkeys(numbers, goal.epoch))
    waits = active.is_waiting or standby.is_waiting or warmup.is_waiting
    return replace(
        member,
        state=StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=TasksTupleWithEpochs(
            kept, _merge_tasks(standby.kept, standby.assignable), _merge_tasks(warmup.kept, warmup.assignable)
        ),
        revoking=EMPTY_TASKS_WITH_EPOCHS,
    )
