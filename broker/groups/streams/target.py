"""A group's new target: what every member is to do. Computed in steps, and written in slices where it is large.

A target that was cut off when the node died does no harm: a process takes an active task only once no other does it,
and the group's epoch stands before the target's until all of it is written.

Source: ``TargetAssignmentBuilder.java``, ``GroupMetadataManager.maybeUpdateStreamsTargetAssignment`` (apache/kafka
4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

from ottla.broker.groups import java_order
from ottla.broker.groups.modern import in_turns
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.streams import records as sr
from ottla.broker.groups.streams.configured import Configured
from ottla.broker.groups.streams.groups import DELAY, SESSION, STANDBYS, StreamsGroups
from ottla.broker.groups.streams.state import NOTHING, Member, MemberState, StreamsGroup, Target
from ottla.broker.groups.streams.sticky import Claim, Extent, Spec, assign

RECORDS_AT_ONCE = 200
INTERVAL = "streams.assignment.interval.ms"
Finish = Callable[[int, Target, Fx], None]
"""Takes the target's epoch, the target of the member that asks, and what to add to."""


class Plan(NamedTuple):
    """What a target is computed from, as it was when the heartbeat came: the group goes on while it runs in slices."""

    group_id: str
    epoch: int
    members: Mapping[str, str]
    """Process ids by member, in the order Kafka looks at them."""
    target: Mapping[str, Target]
    configured: Configured
    standbys: int
    now_ms: int


def plan(
    group: StreamsGroup,
    epoch: int,
    updated: Member | None,
    configured: Configured,
    configs: Mapping[str, str],
    now_ms: int,
) -> Plan:
    """Keep what the computation needs. ``updated``: the member that asks, as it is now."""
    known = java_order.timeline(group.members)
    if updated is not None and updated.id not in group.members:
        known.append(updated.id)
    order = java_order.texts(known, most=len(known))
    members = {
        name: (updated if updated is not None and name == updated.id else group.members[name]).process_id
        for name in order
    }
    standbys = configs.get(STANDBYS, "0")
    number = int(standbys) if standbys.isdecimal() else 0
    return Plan(group.id, epoch, members, dict(group.target), configured, number, now_ms)


def rows_of(todo: Plan) -> int:
    """About how much work it is, in members: a task is a quarter of one."""
    subtopologies = todo.configured.subtopologies or {}
    return len(todo.members) + sum(one.tasks for one in subtopologies.values()) // 4


def compute(todo: Plan) -> Generator[None, None, dict[str, Target]]:
    """The new target of every member; nothing while the topology's topics are not as they must be."""
    if not todo.configured.is_ready:
        return dict.fromkeys(todo.members, NOTHING)
    members = {name: Claim(process, todo.target.get(name, NOTHING)) for name, process in todo.members.items()}
    known = todo.configured.subtopologies or {}
    extents = {name: Extent(one.tasks, one.is_stateful) for name, one in known.items()}
    return (yield from assign(Spec(members, extents, todo.standbys)))


def written(todo: Plan, updated_id: str | None, finish: Finish) -> Iterator[Fx]:
    """Compute a target, write what is new of it, and let the member that asks go on."""
    new = yield from in_turns(compute(todo))
    fx = Fx()
    for name, target in new.items():
        if todo.target.get(name) != target:
            fx.records.append(sr.target_record(todo.group_id, name, target))
        if len(fx.records) == RECORDS_AT_ONCE:
            yield fx
            fx = Fx()
    fx.records.append(sr.target_epoch_record(todo.group_id, todo.epoch, todo.now_ms))
    finish(todo.epoch, new.get(updated_id or "", NOTHING), fx)
    yield fx


def timer(groups: StreamsGroups, key: tuple[str, ...], now_ms: int) -> Fx:
    """The wait for first members is over, or a member's time is."""
    fx = Fx()
    group = groups.groups.get(key[1])
    if key[0] == DELAY:
        groups.delayed.discard(key[1])
        if group is not None:
            _assign_late(groups, group, now_ms, fx)
        return fx
    member = group.members.get(key[2]) if group is not None else None
    if group is not None and member is not None and (key[0] == SESSION or member.state is MemberState.UNREVOKED_TASKS):
        groups.fence(group, member.id, fx)
    return fx


def _assign_late(groups: StreamsGroups, group: StreamsGroup, now_ms: int, fx: Fx) -> None:
    """Compute a group's first target, where anybody has looked at its topology; else the next heartbeat does."""
    configured = group.configured
    if not group.members or configured is None or group.epoch <= group.target_epoch:
        return
    if group.is_time(groups.number(group.id, INTERVAL), now_ms):
        todo = plan(group, group.epoch, None, configured, group.configs, now_ms)
        fx.continue_with(written(todo, None, lambda *_: None), rows_of(todo))
