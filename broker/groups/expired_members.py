"""Expired timers of consumer, share and streams groups: most remove a member, which is retried if the write fails.

Source: ``CoordinatorTimerImpl.schedule`` with ``retry`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.groups.classic.rebalance import ExpiredMember, GroupEffects
from ottla.jobs.state_machine import ScheduleTimer
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.groups.share.groups import ShareGroups

RETRY_MS = 500


def on_timer(machine: Any, key: tuple[str, ...], now_ms: int) -> GroupEffects:
    """Return the effects of an expired timer of a consumer, share or streams group, mostly the removal of a member.

    ``machine``: a `GroupStateMachine`.
    ``key``: name of the timer, group id, and member id for a timer of a member.
    """
    member = _find_member(machine, key)
    fx = _expire(machine, key, now_ms)
    if member is not None and (fx.records or fx.continuation is not None):
        fx.on_commit_outcome = ExpiredMember(key, member)
    return fx


def _expire(machine: Any, key: tuple[str, ...], now_ms: int) -> GroupEffects:
    if key[0].startswith("share-"):
        shares: ShareGroups = machine.share_groups
        return shares.on_timer(key)
    if key[0].startswith("streams-"):
        # lazy: 16.2 ms, 785 kB
        from ottla.broker.groups.streams.target_assignment import on_timer as streams_timer

        return streams_timer(machine.streams_groups, key, now_ms)
    # lazy: 14.0 ms, 687 kB
    from ottla.broker.groups.consumer.member_removal import on_timer as consumer_timer

    return consumer_timer(machine.consumer_groups, key, now_ms)


def on_write_result(machine: Any, expired: ExpiredMember, error: ErrorCode, now_ms: int) -> GroupEffects:
    """Return effects that schedule the timer again in 500 ms if the removal's write failed and the member is unchanged.

    Else the effects are empty.
    """
    again = error is not ErrorCode.NONE and _find_member(machine, expired.key) is expired.owner
    return GroupEffects(timers=[ScheduleTimer(expired.key, now_ms + RETRY_MS)] if again else [])


def _find_member(machine: Any, key: tuple[str, ...]) -> Any:
    if len(key) < 3:
        return None
    kind = key[0].partition("-")[0]
    find: Any = {
        "share": machine.find_share_group,
        "streams": machine.find_streams_group,
        "consumer": machine.find_consumer_group,
    }[kind]
    group = find(key[1])
    return None if group is None else group.members.get(key[2])
