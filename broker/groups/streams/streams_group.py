"""State of a streams group, replayed from its records: topology, members with tasks, targets, and owners of tasks.

Source: ``StreamsGroup.java``, ``StreamsGroupMember.java``, ``TasksTupleWithEpochs.java`` (apache/kafka 4.3.1),
KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.modern_group import AssignedGroup
from ottla.broker.groups.streams.topology import StreamsTopology

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology

TasksBySubtopology = Mapping[str, frozenset[int]]
"""Tasks: partition numbers by subtopology id."""
TaskEpochs = Mapping[str, Mapping[int, int]]
"""Tasks by subtopology id and partition number, each with the member epoch at which it was assigned."""
NO_TASKS: TasksBySubtopology = {}
SUBTOPOLOGIES_PER_STEP = 200
"""Number of subtopologies after which the replay of a member yields."""


class TasksTuple(NamedTuple):
    """Active, standby and warm-up tasks that are a member's target, or that it reports to own."""

    active: TasksBySubtopology = NO_TASKS
    standby: TasksBySubtopology = NO_TASKS
    warmup: TasksBySubtopology = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True if there are no tasks in any role."""
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, other: TasksTupleWithEpochs) -> bool:
        """Return True if any task is in ``other`` in the same role (active, standby or warm-up)."""
        roles = zip(self, (other.active, other.standby, other.warmup), strict=True)
        return any(not tasks[name].isdisjoint(others.get(name, ())) for tasks, others in roles for name in tasks)


class TasksTupleWithEpochs(NamedTuple):
    """Active, standby and warm-up tasks that a member is assigned, or has to revoke."""

    active: TaskEpochs = {}  # noqa: RUF012  # never changed
    standby: TasksBySubtopology = NO_TASKS
    warmup: TasksBySubtopology = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True if there are no tasks in any role."""
        return not (self.active or self.standby or self.warmup)


EMPTY_TASKS = TasksTuple()
EMPTY_TASKS_WITH_EPOCHS = TasksTupleWithEpochs()


class StreamsMemberState(IntEnum):
    """State of a member's reconciliation; the value is that of the current assignment record.

    UNKNOWN stands for every other value of a record.
    """

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> StreamsMemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsGroupMember:
    """Member of a streams group: a stream thread of an application in the process ``process_id``."""

    id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    """Endpoint for interactive queries: host and port."""
    tags: tuple[tuple[str, str], ...] = ()
    """Client tags (key, value) in order of their keys."""
    assigned: TasksTupleWithEpochs = EMPTY_TASKS_WITH_EPOCHS
    revoking: TasksTupleWithEpochs = EMPTY_TASKS_WITH_EPOCHS

    @property
    def uses_classic_protocol(self) -> bool:
        """False: a member of a streams group never uses the classic protocol."""
        return False

    @property
    def is_revoking(self) -> bool:
        """True if the member has tasks to revoke before its rebalance timeout."""
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if the member is assigned all tasks of the target of an epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch


class StreamsGroup(AssignedGroup[StreamsGroupMember, TasksTuple]):
    """State of a streams group. Its members change only by replay (`update_job`, `remove`)."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_epoch = 0
        """Topology epoch for which all topics exist as required; -1 while they do not."""
        self.configs: dict[str, str] = {}
        """Configuration of the assignor at the last group epoch."""
        self.topology: StreamsTopology | None = None
        self.active_process_ids: dict[str, dict[int, str]] = {}
        """Subtopology id -> partition number -> id of the process that has the active task."""
        self.standby_process_ids: dict[str, dict[int, set[str]]] = {}
        self.warmup_process_ids: dict[str, dict[int, set[str]]] = {}
        self.configured: ConfiguredTopology | None = None
        """Soft state: the topology configured with the existing topics; None until the first heartbeat."""
        self.shutdown_requested_by: str | None = None
        """Soft state: id of the member that requested the shutdown of the application; None if none did."""
        self.endpoint_epoch = 0
        """Soft state: epoch of the endpoint information, bumped when the tasks of a member with an endpoint change."""
        self.cached_endpoint_partitions: dict[str, Any] = {}
        """Soft state: endpoint and partitions of members with an endpoint, as in heartbeat responses, by member id."""

    # ------------------------------------------------------------------ replay

    def update_job(self, member: StreamsGroupMember) -> Iterator[None]:
        """Replay a record of a member: add the member, or replace it by its new state, as a job."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is not None:
            yield from self._remove_owned(old)
        if member.process_id:
            yield from self._add_owned(member.assigned, member.process_id)
            yield from self._add_owned(member.revoking, member.process_id)
        self.cached_endpoint_partitions.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        """Replay the tombstone of a member: remove the member and the ownership of its tasks."""
        old = self.members.pop(member_id, None)
        if old is not None:
            for _ in self._remove_owned(old):
                pass
        self.cached_endpoint_partitions.pop(member_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def _remove_owned(self, member: StreamsGroupMember) -> Iterator[None]:
        """Remove a member's process as owner of its tasks, assigned or being revoked, as a job.

        Active tasks that another process has acquired since are left to it.
        """
        for held in (member.assigned, member.revoking):
            for number, (name, since) in enumerate(held.active.items()):
                owners = self.active_process_ids.get(name, {})
                for partition in since:
                    if owners.get(partition) == member.process_id:
                        del owners[partition]
                if number % SUBTOPOLOGIES_PER_STEP == 0:
                    yield
            for tasks, at in ((held.standby, self.standby_process_ids), (held.warmup, self.warmup_process_ids)):
                for number, (name, partitions) in enumerate(tasks.items()):
                    for partition in partitions:
                        at.get(name, {}).get(partition, set()).discard(member.process_id)
                    if number % SUBTOPOLOGIES_PER_STEP == 0:
                        yield

    def _add_owned(self, held: TasksTupleWithEpochs, process_id: str) -> Iterator[None]:
        for number, (name, since) in enumerate(held.active.items()):
            self.active_process_ids.setdefault(name, {}).update(dict.fromkeys(since, process_id))
            if number % SUBTOPOLOGIES_PER_STEP == 0:
                yield
        for tasks, at in ((held.standby, self.standby_process_ids), (held.warmup, self.warmup_process_ids)):
            for number, (name, partitions) in enumerate(tasks.items()):
                processes = at.setdefault(name, {})
                for partition in partitions:
                    processes.setdefault(partition, set()).add(process_id)
                if number % SUBTOPOLOGIES_PER_STEP == 0:
                    yield

    # ------------------------------------------------------------------ derived state

    def assignment_epoch(self, member: StreamsGroupMember, offset: OffsetToCommit) -> int | None:
        """Return the member epoch at which the active task that reads the partition of ``offset`` was assigned.

        Tasks that ``member`` still has to revoke count; None if it does not have the task.
        """
        subtopology = self.topology.subtopology_by_source.get(offset.topic, "") if self.topology is not None else ""
        assigned = member.assigned.active.get(subtopology, {}).get(offset.partition)
        return member.revoking.active.get(subtopology, {}).get(offset.partition) if assigned is None else assigned

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return True if any of ``topics`` is a source, repartition or changelog topic of the topology."""
        return self.topology is not None and not topics.isdisjoint(self.topology.required_topics)

    @property
    def state(self) -> str:
        """State of the group as in StreamsGroupDescribe: Empty, NotReady, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        followed = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if followed else "Reconciling"

    @property
    def subscribed_topic_names(self) -> Mapping[str, str]:
        """Source and repartition source topics -> id of the subtopology that reads them; empty without members."""
        return self.topology.subtopology_by_source if self.members and self.topology is not None else {}
