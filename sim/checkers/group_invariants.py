"""Invariants of the consumer, streams and share groups on a node, checked in its memory; classic groups are not.

``OneHolder``: a partition has one owner in a consumer group, including partitions to revoke; an active task of a
streams group has one process, and a process has a task in one role. ``EpochsInOrder``: no member epoch exceeds the
assignment epoch, and that does not exceed the group epoch. ``ShareBookIsRight``: in-flight records of a share partition
lie between its start and end offset, have at most the maximum delivery count, and its count of final ones is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.share_partitions.in_flight import RecordState

if TYPE_CHECKING:
    from ottla.broker.components.broker_components import BrokerComponents
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
    from ottla.broker.groups.streams.streams_group import StreamsGroup
    from ottla.broker.share_partitions.share_partition import SharePartition
    from sim.engine.simulation import Simulation

CHECK_INTERVAL_S = 0.1
MAX_REPORTS = 5


class GroupInvariants:
    """Periodic checks of group invariants in the memory of all running nodes."""

    def __init__(self, simulation: Simulation, living: Callable[[], Mapping[str, BrokerComponents]]) -> None:
        self._simulation = simulation
        self._living = living
        self._reported: dict[str, int] = {}

    async def run(self) -> None:
        """Check every `CHECK_INTERVAL_S` until cancelled."""
        while True:
            for host, parts in self._living().items():
                for name, detail in find_violations(parts, whole=not self._simulation.ledger.power_cuts):
                    self._report(name, f"at {self._simulation.now_s():.3f} s, {host}: {detail}")
            await trio.sleep(CHECK_INTERVAL_S)

    def _report(self, name: str, detail: str) -> None:
        self._reported[name] = self._reported.get(name, 0) + 1
        if self._reported[name] <= MAX_REPORTS:
            self._simulation.trace_event(f"{name}: {detail}")
            self._simulation.ledger.report_violation(name, detail)


def find_violations(parts: BrokerComponents, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield name and detail of each violation in the groups, and the led share partitions, of a node.

    ``whole``: no segment with records of groups was lost in a power cut; else only share partitions are checked.
    """
    for shard in parts.groups if whole else ():
        if shard.state is not CoordinatorState.ACTIVE:
            continue
        machine = state_machine_of(shard)
        for consumer in machine.list_consumer_groups():
            yield from duplicate_assignments(consumer)
            yield from epochs_out_of_order(consumer)
        for streams in machine.list_streams_groups():
            yield from duplicate_tasks(streams)
            yield from epochs_out_of_order(streams)
    shares = vars(parts).get("share_partition_manager")
    if shares is not None:
        for key, shared in shares._by_key.items():
            if shared.share_partition is not None:
                for detail in inconsistent_counts(shared.share_partition):
                    yield "ShareBookIsRight", f"{key.group_id} {key.partition}: {detail}"


def duplicate_assignments(group: ConsumerGroup) -> Iterator[tuple[str, str]]:
    """Yield ``OneHolder`` and detail of each partition with two owners, counting those to revoke."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for held in (member.assigned, member.revoking):
            for topic, numbers in held.items():
                for number in numbers:
                    known = owners.setdefault((topic, number), member.id)
                    if known != member.id:
                        yield "OneHolder", f"{group.id}: {topic.hex()[-4:]}-{number} with {known} and {member.id}"


def duplicate_tasks(group: StreamsGroup) -> Iterator[tuple[str, str]]:
    """Yield ``OneHolder`` and detail of active tasks in two processes, and of tasks in two roles or threads of one."""
    doers: dict[tuple[str, int], str] = {}
    roles: dict[tuple[str, str, int], str] = {}
    for member in group.members.values():
        for held in (member.assigned, member.revoking):
            for role, tasks in (("active", held.active), ("standby", held.standby), ("warmup", held.warmup)):
                for name, numbers in tasks.items():
                    for number in numbers:
                        text = f"{group.id}: {name}_{number}"
                        known = roles.setdefault((member.process_id, name, number), f"{role} of {member.id}")
                        if known != f"{role} of {member.id}":
                            yield "OneHolder", f"{text} in {member.process_id}: {known}, {role} of {member.id}"
                        if (
                            role == "active"
                            and doers.setdefault((name, number), member.process_id) != member.process_id
                        ):
                            yield "OneHolder", f"{text} in {doers[name, number]} and {member.process_id}"


def epochs_out_of_order(group: ConsumerGroup | StreamsGroup) -> Iterator[tuple[str, str]]:
    """Yield ``EpochsInOrder`` and detail of member epochs above the assignment epoch, and of that above the group's."""
    if group.target_epoch > group.epoch:
        yield "EpochsInOrder", f"{group.id}: target {group.target_epoch} of {group.epoch}"
    for member in group.members.values():
        if member.epoch > group.target_epoch:
            yield "EpochsInOrder", f"{group.id}: {member.id} in {member.epoch} of {group.target_epoch}"


def inconsistent_counts(share: SharePartition) -> Iterator[str]:
    """Yield descriptions of inconsistencies in the in-flight records of a share partition and in their count."""
    done = 0
    end = share.start_offset - 1
    for batch in share:
        if batch.first_offset <= end and end >= share.start_offset:
            yield f"{batch.first_offset} is in two batches"
        end = batch.last_offset
        for offset in range(max(batch.first_offset, share.start_offset), batch.last_offset + 1):
            state = batch.state_at(offset)
            done += state.state.is_final
            if state.delivery_count > share.limits.max_delivery_count:
                yield f"{offset} went out {state.delivery_count} times"
            if state.state is RecordState.ACQUIRED and not state.member_id:
                yield f"{offset} is with nobody"
    if len(share) and end > share.end_offset:
        yield f"{end} is in flight, behind the end {share.end_offset}"
    if done != share.delivery_complete_count:
        yield f"{done} are done from {share.start_offset} on, and {share.delivery_complete_count} count as done"
