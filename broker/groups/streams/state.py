"""A streams group as its records say it is: topology, members with their tasks, targets, and who does what.

Source: ``StreamsGroup.java``, ``StreamsGroupMember.java``, ``TasksTupleWithEpochs.java`` (apache/kafka 4.3.1),
KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.groups.modern import ModernGroup
from ottla.broker.groups.streams.topology import Topology

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured import Configured

LEAVING = -1
Tasks = Mapping[str, frozenset[int]]
"""Tasks by subtopology: the numbers of the partitions they read."""
Since = Mapping[str, Mapping[int, int]]
"""Tasks by subtopology, each with the epoch its member got it in."""
NO_TASKS: Tasks = {}


class Target(NamedTuple):
    """What a member is to do."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether it is nothing at all."""
        return not (self.active or self.standby or self.warmup)

    def has_any(self, held: Held) -> bool:
        """Whether any of these tasks is among them, in the same role."""
        roles = zip(self, (held.active, held.standby, held.warmup), strict=True)
        return any(not tasks[name].isdisjoint(others.get(name, ())) for tasks, others in roles for name in tasks)


class Held(NamedTuple):
    """What a member does, or has still to give up."""

    active: Since = {}  # noqa: RUF012  # never changed
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether it is nothing at all."""
        return not (self.active or self.standby or self.warmup)


NOTHING = Target()
NONE_HELD = Held()


class MemberState(IntEnum):
    """Where a member is on its way to its target; the numbers stand in its record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    """One member: a thread of an application, in the process ``process_id``."""

    id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    """Where others may ask it for what it stores: host and port."""
    tags: tuple[tuple[str, str], ...] = ()
    """In order of their keys."""
    assigned: Held = NONE_HELD
    revoking: Held = NONE_HELD

    def is_at(self, epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch


class StreamsGroup(ModernGroup[Member, Target]):
    """One group. `update` and `remove` are for the replay of its records alone."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_epoch = 0
        """The topology's epoch once all its topics are as they must be; -1 while they are not."""
        self.configs: dict[str, str] = {}
        """What the assignor was told last."""
        self.topology: Topology | None = None
        self.active_at: dict[str, dict[int, str]] = {}
        """Subtopology, partition -> the process that does the task."""
        self.standby_at: dict[str, dict[int, set[str]]] = {}
        self.warmup_at: dict[str, dict[int, set[str]]] = {}
        self.configured: Configured | None = None
        """Soft: what the topology comes to with the topics there are; None where nobody has looked yet."""
        self.shutdown_by: str | None = None
        """Soft: the member that wants the whole application to end."""
        self.endpoint_epoch = 0
        """Soft: goes up with every change of what members with endpoints do."""
        self.endpoint_rows: dict[str, Any] = {}
        """Soft: what others are told of a member with an endpoint."""

    # ------------------------------------------------------------------ replay

    def update(self, member: Member) -> None:
        """A member is like this now."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is not None:
            self._release(old)
        if member.process_id:
            self._own(member.assigned, member.process_id)
            self._own(member.revoking, member.process_id)
        self.endpoint_rows.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        """A member is gone."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self._release(old)
        self.endpoint_rows.pop(member_id, None)
        if not self.members:
            self.shutdown_by = None

    def _release(self, member: Member) -> None:
        """What a member did is free, but for what another process has taken over since."""
        for held in (member.assigned, member.revoking):
            for name, since in held.active.items():
                owners = self.active_at.get(name, {})
                for number in since:
                    if owners.get(number) == member.process_id:
                        del owners[number]
            for tasks, at in ((held.standby, self.standby_at), (held.warmup, self.warmup_at)):
                for name, numbers in tasks.items():
                    for number in numbers:
                        at.get(name, {}).get(number, set()).discard(member.process_id)

    def _own(self, held: Held, process_id: str) -> None:
        for name, since in held.active.items():
            self.active_at.setdefault(name, {}).update(dict.fromkeys(since, process_id))
        for tasks, at in ((held.standby, self.standby_at), (held.warmup, self.warmup_at)):
            for name, numbers in tasks.items():
                owners = at.setdefault(name, {})
                for number in numbers:
                    owners.setdefault(number, set()).add(process_id)

    # ------------------------------------------------------------------ what follows from it

    @property
    def state(self) -> str:
        """Empty, NotReady, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        followed = all(member.is_at(self.target_epoch) for member in self.members.values())
        return "Stable" if followed else "Reconciling"

    @property
    def names(self) -> Mapping[str, str]:
        """Topics its members read, with the subtopology that does; none while there are no members."""
        return self.topology.sources if self.members and self.topology is not None else {}
