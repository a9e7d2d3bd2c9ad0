"""Target assignment of a streams group: computed in steps, and written in slices where it is large.

A target that a crash leaves incomplete does no harm: a process is assigned an active task only once no other process
has it, and the group epoch is higher than the target's epoch until all of the target is written.

Source: ``TargetAssignmentBuilder.java``, ``GroupMetadataManager.maybeUpdateStreamsTargetAssignment`` (apache/kafka
4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.streams import records
from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
from ottla.broker.groups.streams.groups import (
    INITIAL_DELAY_TIMER,
    STANDBY_REPLICAS_CONFIG,
    StreamsGroups,
)
from ottla.broker.groups.streams.sticky_task_assignor import (
    AssignmentMemberSpec,
    StreamsGroupSpec,
    SubtopologySpec,
    assign_sticky,
)
from ottla.broker.groups.streams.streams_group import (
    EMPTY_TASKS,
    StreamsGroup,
    StreamsGroupMember,
    TasksTuple,
)

MAX_RECORDS_PER_SLICE = 200
OnTargetReady = Callable[[int, TasksTuple, GroupEffects], None]
"""Called with the target epoch, the target of the member that sent the heartbeat, and the effects to extend."""


class StreamsAssignmentInput(NamedTuple):
    """Snapshot of the group as of the heartbeat; the group may change while the computation runs in time slices."""

    group_id: str
    epoch: int
    members: Mapping[str, str]
    """Process ids by member id, in Kafka's iteration order."""
    target: Mapping[str, TasksTuple]
    configured: ConfiguredTopology
    standby_replicas: int
    now_ms: int


def capture_input(
    group: StreamsGroup,
    epoch: int,
    updated: StreamsGroupMember | None,
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    now_ms: int,
) -> StreamsAssignmentInput:
    """Return a snapshot of the group, from which the target of the group epoch ``epoch`` is computed.

    ``updated``: the member that sent the heartbeat, in its new state; None without one. ``configs``: configuration of
    the assignor.
    """
    known = iteration_order.timeline_hash_map_order(group.members)
    if updated is not None and updated.id not in group.members:
        known.append(updated.id)
    order = iteration_order.hash_map_order(known, most=len(known))
    members = {
        name: (updated if updated is not None and name == updated.id else group.members[name]).process_id
        for name in order
    }
    standbys = configs.get(STANDBY_REPLICAS_CONFIG, "0")
    number = int(standbys) if standbys.isdecimal() else 0
    return StreamsAssignmentInput(group.id, epoch, members, dict(group.target), configured, number, now_ms)


def work_units(assignment_input: StreamsAssignmentInput) -> int:
    """Return the approximate work of the computation in members; a task costs a quarter of a member."""
    subtopologies = assignment_input.configured.subtopologies or {}
    return len(assignment_input.members) + sum(one.task_count for one in subtopologies.values()) // 4


def compute_targets(assignment_input: StreamsAssignmentInput) -> Generator[None, None, dict[str, TasksTuple]]:
    """Return the target tasks by member id, as a job; all members have none while the topology is not ready."""
    if not assignment_input.configured.is_ready:
        return dict.fromkeys(assignment_input.members, EMPTY_TASKS)
    members = {
        name: AssignmentMemberSpec(process, assignment_input.target.get(name, EMPTY_TASKS))
        for name, process in assignment_input.members.items()
    }
    known = assignment_input.configured.subtopologies or {}
    extents = {name: SubtopologySpec(one.task_count, one.is_stateful) for name, one in known.items()}
    return (yield from assign_sticky(StreamsGroupSpec(members, extents, assignment_input.standby_replicas)))


def compute_and_write_targets(
    assignment_input: StreamsAssignmentInput, updated_id: str | None, finish: OnTargetReady
) -> Iterator[GroupEffects | None]:
    """Compute the target in steps; yield the records of the changed targets and of the target epoch, call ``finish``.

    ``updated_id``: member whose target is passed to ``finish``; None for empty tasks.
    """
    new = yield from compute_targets(assignment_input)
    fx = GroupEffects()
    for name, target in new.items():
        if assignment_input.target.get(name) != target:
            fx.records.append(records.target_assignment_record(assignment_input.group_id, name, target))
        if len(fx.records) == MAX_RECORDS_PER_SLICE:
            yield fx
            fx = GroupEffects()
    fx.records.append(
        records.target_assignment_epoch_record(
            assignment_input.group_id, assignment_input.epoch, assignment_input.now_ms
        )
    )
    finish(assignment_input.epoch, new.get(updated_id or "", EMPTY_TASKS), fx)
    yield fx


def on_timer(groups: StreamsGroups, key: tuple[str, ...], now_ms: int) -> GroupEffects:
    """Return the effects of an expired timer: the first target assignment, or the removal of a member.

    The former follows the initial rebalance delay; the latter a session timeout, or a rebalance timeout of a member
    that has still tasks to revoke.
    """
    fx = GroupEffects()
    group = groups.groups.get(key[1])
    if key[0] == INITIAL_DELAY_TIMER:
        groups.delayed_groups.discard(key[1])
        if group is not None:
            _assign_after_delay(groups, group, now_ms, fx)
        return fx
    member = group.members.get(key[2]) if group is not None else None
    if group is not None and member is not None and (key[0] == "streams-session" or member.is_revoking):
        groups.fence_member(group, member.id, fx)
    return fx


def _assign_after_delay(groups: StreamsGroups, group: StreamsGroup, now_ms: int, fx: GroupEffects) -> None:
    """Add to ``fx`` the computation of the first target after the initial delay.

    Without members, a configured topology or a due assignment nothing is added: the next heartbeat computes it.
    """
    configured = group.configured
    if not group.members or configured is None or group.epoch <= group.target_epoch:
        return
    if group.is_assignment_due(groups.setting(group.id, "assignment.interval.ms"), now_ms):
        assignment_input = capture_input(group, group.epoch, None, configured, group.configs, now_ms)
        fx.continue_with(
            compute_and_write_targets(assignment_input, None, lambda *_: None), work_units(assignment_input)
        )
