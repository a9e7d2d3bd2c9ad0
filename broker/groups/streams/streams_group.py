"""Streams group as replayed from its records: topology, members with tasks, targets, and owners of tasks.

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
"""Tasks by subtopology: the numbers of the partitions they read."""
TaskEpochs = Mapping[str, Mapping[int, int]]
"""Tasks by subtopology, each with the epoch its member got it in."""
NO_TASKS: TasksBySubtopology = {}
SUBTOPOLOGIES_PER_STEP = 200
"""Replay of a member yields after so many subtopologies."""


class TasksTuple(NamedTuple):
    """Tasks of a member's target."""

    active: TasksBySubtopology = NO_TASKS
    standby: TasksBySubtopology = NO_TASKS
    warmup: TasksBySubtopology = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True without tasks."""
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, held: TasksTupleWithEpochs) -> bool:
        """Return True if any of these tasks is held in the same role."""
        roles = zip(self, (held.active, held.standby, held.warmup), strict=True)
        return any(not tasks[name].isdisjoint(others.get(name, ())) for tasks, others in roles for name in tasks)


class TasksTupleWithEpochs(NamedTuple):
    """Tasks that a member has, or has to revoke."""

    active: TaskEpochs = {}  # noqa: RUF012  # never changed
    standby: TasksBySubtopology = NO_TASKS
    warmup: TasksBySubtopology = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True without tasks."""
        return not (self.active or self.standby or self.warmup)


EMPTY_TASKS = TasksTuple()
EMPTY_TASKS_WITH_EPOCHS = TasksTupleWithEpochs()


class StreamsMemberState(IntEnum):
    """State of a member's reconciliation; the numbers are those of its record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> StreamsMemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsGroupMember:
    """Group member: a thread of an application, in the process ``process_id``."""

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
    """In order of their keys."""
    assigned: TasksTupleWithEpochs = EMPTY_TASKS_WITH_EPOCHS
    revoking: TasksTupleWithEpochs = EMPTY_TASKS_WITH_EPOCHS

    @property
    def uses_classic_protocol(self) -> bool:
        """True if the member joined with the classic protocol: never."""
        return False

    @property
    def is_revoking(self) -> bool:
        """True if the member has tasks to revoke, within its rebalance timeout."""
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if the member has all tasks of the target of this epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch


class StreamsGroup(AssignedGroup[StreamsGroupMember, TasksTuple]):
    """Streams group. `update` and `remove` are only for the replay of its records."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_epoch = 0
        """The topology's epoch once all its topics are as they must be; -1 while they are not."""
        self.configs: dict[str, str] = {}
        """What the assignor was told last."""
        self.topology: StreamsTopology | None = None
        self.active_process_ids: dict[str, dict[int, str]] = {}
        """Subtopology, partition -> the process that does the task."""
        self.standby_process_ids: dict[str, dict[int, set[str]]] = {}
        self.warmup_process_ids: dict[str, dict[int, set[str]]] = {}
        self.configured: ConfiguredTopology | None = None
        """Soft: what the topology comes to with the topics there are; None where nobody has looked yet."""
        self.shutdown_requested_by: str | None = None
        """Soft: the member that wants the whole application to end."""
        self.endpoint_epoch = 0
        """Soft: goes up with every change of what members with endpoints do."""
        self.cached_endpoint_partitions: dict[str, Any] = {}
        """Soft: what others are told of a member with an endpoint."""

    # ------------------------------------------------------------------ replay

    def update_job(self, member: StreamsGroupMember) -> Iterator[None]:
        """Replay the state of a member; yield between two steps."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is not None:
            yield from self._remove_owned(old)
        if member.process_id:
            yield from self._add_owned(member.assigned, member.process_id)
            yield from self._add_owned(member.revoking, member.process_id)
        self.cached_endpoint_partitions.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        """Replay the end of a member."""
        old = self.members.pop(member_id, None)
        if old is not None:
            for _ in self._remove_owned(old):
                pass
        self.cached_endpoint_partitions.pop(member_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def _remove_owned(self, member: StreamsGroupMember) -> Iterator[None]:
        """Free the tasks of a member, except those that another process has taken over since."""
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

    # ------------------------------------------------------------------ what follows from it

    def assignment_epoch(self, member: StreamsGroupMember, offset: OffsetToCommit) -> int | None:
        """Return the epoch since which a member has the active task that reads the partition of an offset."""
        subtopology = self.topology.subtopology_by_source.get(offset.topic, "") if self.topology is not None else ""
        assigned = member.assigned.active.get(subtopology, {}).get(offset.partition)
        return member.revoking.active.get(subtopology, {}).get(offset.partition) if assigned is None else assigned

    def uses_any(self, topics: frozenset[str]) -> bool:
        """Return whether the topology reads, or stores changes in, any of these topics."""
        return self.topology is not None and not topics.isdisjoint(self.topology.required_topics)

    @property
    def state(self) -> str:
        """Empty, NotReady, Assigning, Reconciling or Stable."""
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
        """Topics its members read, with the subtopology that does; none while there are no members."""
        return self.topology.subtopology_by_source if self.members and self.topology is not None else {}
