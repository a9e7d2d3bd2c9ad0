"""How a member gets from what it does to its target: it gives up first, then takes what others have given up.

A task is active in one process at a time, and a process has it in one role. So a new active task is free once no
process does it and the member's own has it in no role; a new standby task once the own process has it in none.

Source: ``CurrentAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ottla.broker.groups.streams.state import NONE_HELD, Held, Member, MemberState, StreamsGroup, Target, Tasks
from ottla.wire.errors import ErrorCode, ProtocolError

_NOBODY: set[str] = set()


class Goal(NamedTuple):
    """Where a member is to go: the target and its epoch, and what it says it has; None where it says nothing."""

    epoch: int
    target: Target
    owned: Target | None


def check_known(member: Member, owned: Target | None) -> None:
    """Whether it is known what state a member is in; if not, it must come with nothing.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or not owned.is_empty):
        why = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)


def reconcile(member: Member, goal: Goal, group: StreamsGroup) -> Member:
    """The member, after `check_known`, after its next step; the same where it must wait."""
    match member.state:
        case MemberState.STABLE:
            return member if member.epoch == goal.epoch else _next(member, goal, group, member.epoch)
        case MemberState.UNREVOKED_TASKS:
            if goal.owned is None or goal.owned.has_any(member.revoking):
                return member
            return _next(member, goal, group, member.epoch + 1)
        case MemberState.UNRELEASED_TASKS:
            return _next(member, goal, group, member.epoch)
        case _:
            return _next(member, goal, group, goal.epoch)


def _holds(group: StreamsGroup, process_id: str, name: str, number: int) -> bool:
    """Whether a process has a task that is not active with it."""
    return any(process_id in at.get(name, {}).get(number, _NOBODY) for at in (group.standby_at, group.warmup_at))


class _Parts(NamedTuple):
    """Of one role: what stays, what goes, what can be taken now, and whether something cannot."""

    stay: Tasks
    give: Tasks
    take: Tasks
    waits: bool


def _parts(had: Tasks, wanted: Tasks, member: Member, group: StreamsGroup, *, active: bool) -> _Parts:
    stay: dict[str, frozenset[int]] = {}
    give: dict[str, frozenset[int]] = {}
    take: dict[str, frozenset[int]] = {}
    waits = False
    for name in {**wanted, **had}:
        has, wants = had.get(name, frozenset[int]()), wanted.get(name, frozenset[int]())
        owners = group.active_at.get(name, {})

        def is_free(number: int, name: str = name, owners: dict[int, str] = owners) -> bool:
            owner = owners.get(number)
            taken = owner is not None if active else owner == member.process_id
            return not taken and not _holds(group, member.process_id, name, number)

        new = wants - has
        free = frozenset(number for number in new if is_free(number))
        waits = waits or len(free) < len(new)
        for out, part in ((stay, has & wants), (give, has - wants), (take, free)):
            if part:
                out[name] = part
    return _Parts(stay, give, take, waits)


def _joined(some: Tasks, more: Tasks) -> Tasks:
    return {name: some.get(name, frozenset()) | more.get(name, frozenset()) for name in {**some, **more}}


def _next(member: Member, goal: Goal, group: StreamsGroup, epoch: int) -> Member:
    """What the member keeps, gives up, and can take now; it has this epoch as long as there is something to give up."""
    had, target = member.assigned, goal.target
    active_had = {name: frozenset(since) for name, since in had.active.items()}
    active = _parts(active_had, target.active, member, group, active=True)
    standby = _parts(had.standby, target.standby, member, group, active=False)
    warmup = _parts(had.warmup, target.warmup, member, group, active=False)

    def since(tasks: Tasks) -> dict[str, dict[int, int]]:
        return {name: {number: had.active[name][number] for number in tasks[name]} for name in tasks}

    revoking = Held(since(active.give), standby.give, warmup.give)
    if not revoking.is_empty and (goal.owned is None or goal.owned.has_any(revoking)):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=Held(since(active.stay), standby.stay, warmup.stay),
            revoking=revoking,
        )
    kept = since(active.stay)
    for name, numbers in active.take.items():
        kept.setdefault(name, {}).update(dict.fromkeys(numbers, goal.epoch))
    waits = active.waits or standby.waits or warmup.waits
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=Held(kept, _joined(standby.stay, standby.take), _joined(warmup.stay, warmup.take)),
        revoking=NONE_HELD,
    )
