"""Sticky task assignor: tasks remain with their members within the quota, others are assigned to the least loaded.

Source: ``StickyTaskAssignor.java``, ``ProcessState.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.java_collections.priority_queue import JavaPriorityQueue
from ottla.broker.groups.streams.streams_group import TasksTuple

TASKS_PER_STEP = 200
"""Tasks that are assigned in one step."""


class AssignmentMemberSpec(NamedTuple):
    """Member as input of the assignor: its process id and its current target."""

    process_id: str
    previous_tasks: TasksTuple


class SubtopologySpec(NamedTuple):
    """Subtopology as input of the assignor: number of tasks, and whether it has state stores."""

    task_count: int
    is_stateful: bool


class StreamsGroupSpec(NamedTuple):
    """Streams group as input of the assignor: members in Kafka's iteration order, subtopologies in order of ids."""

    members: Mapping[str, AssignmentMemberSpec]
    subtopologies: dict[str, SubtopologySpec]
    standby_replicas: int
    """Number of standby tasks for each stateful task."""


class _Task(NamedTuple):
    """Task: subtopology id and partition number."""

    subtopology: str
    partition: int


class _ProcessState:
    """Process of a Streams application in the computation: number of tasks by member, and tasks assigned so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.placed = 0
        self._tasks: set[_Task] = set()
        self._queue: JavaPriorityQueue[str] | None = None

    @property
    def load(self) -> float:
        """Number of assigned tasks, of all roles, per member of the process."""
        return self.placed / len(self.counts)

    def has_task(self, task: _Task) -> bool:
        """Return True if a member of the process is assigned a task, in any role."""
        return task in self._tasks

    def add_task(self, member_id: str, task: _Task) -> int:
        """Assign a task to a member of the process; return the member's number of tasks."""
        self._queue = None
        return self._add_task(member_id, task)

    def _add_task(self, member_id: str, task: _Task) -> int:
        self.placed += 1
        self._tasks.add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_task_to_least_loaded(self, task: _Task) -> tuple[str, int]:
        """Assign a task to the member of the process with the fewest tasks.

        Return the member and its number of tasks.
        """
        if len(self.counts) == 1:
            only = next(iter(self.counts))
            return only, self._add_task(only, task)
        if self._queue is None:
            self._queue = JavaPriorityQueue(self.counts.__getitem__, iteration_order.hash_map_order(self.counts))
        member_id = self._queue.poll()
        count = self._add_task(member_id, task)
        self._queue.add(member_id)
        return member_id, count


class _TaskQuota:
    """Quota of tasks per member, rounded up: an equal share of the remaining tasks among members below the quota."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.tasks_per_member = self._share()

    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def record_count(self, count: int) -> None:
        """Recompute the quota for the other members if ``count``, a member's number of tasks, has reached it."""
        if count == self.tasks_per_member:
            self._members -= 1
            self._tasks -= count
            self.tasks_per_member = self._share()


TasksByMember = dict[str, dict[str, set[int]]]
"""Member id -> subtopology id -> partition numbers."""
TaskAssignmentJob = Generator[None, None, dict[str, TasksTuple]]


class _StickyAssignment:
    """Computation of one target assignment."""

    def __init__(self, spec: StreamsGroupSpec) -> None:
        self._spec = spec
        self._process_of = {name: claim.process_id for name, claim in spec.members.items()}
        actives = sum(extent.task_count for extent in spec.subtopologies.values())
        standbys = (
            sum(extent.task_count for extent in spec.subtopologies.values() if extent.is_stateful)
            * spec.standby_replicas
        )
        self._active_quota = _TaskQuota(actives, len(spec.members))
        self._quota = _TaskQuota(actives + standbys, len(spec.members))
        self._processes: dict[str, _ProcessState] = {}
        self._active_before: dict[_Task, str] = {}
        self._standby_before: dict[_Task, list[str]] = {}
        for name, claim in spec.members.items():
            self._processes.setdefault(claim.process_id, _ProcessState()).counts[name] = 0
            for subtopology, numbers in claim.previous_tasks.active.items():
                self._active_before.update((_Task(subtopology, number), name) for number in numbers)
            for subtopology, numbers in claim.previous_tasks.standby.items():
                for number in numbers:
                    self._standby_before.setdefault(_Task(subtopology, number), []).append(name)
        self.active: TasksByMember = {}
        self.standby: TasksByMember = {}

    def _by_partition(self, *, stateful: bool) -> Iterator[list[_Task]]:
        """Yield the tasks of partition 0 of all subtopologies in order of their ids, then those of partition 1, etc.

        ``stateful``: only of subtopologies with state stores.
        """
        left = [(name, e.task_count) for name, e in self._spec.subtopologies.items() if e.is_stateful or not stateful]
        number = 0
        while left:
            yield [_Task(name, number) for name, _ in left]
            number += 1
            left = [(name, tasks) for name, tasks in left if tasks > number]

    def _process(self, member_id: str) -> _ProcessState:
        return self._processes[self._process_of[member_id]]

    def _queue(self) -> JavaPriorityQueue[_ProcessState]:
        order = iteration_order.presized_hash_map_order(self._processes, len(self._spec.members))
        return JavaPriorityQueue(lambda process: process.load, [self._processes[name] for name in order])

    def _note(self, roles: TasksByMember, member_id: str, task: _Task) -> None:
        roles.setdefault(member_id, {}).setdefault(task.subtopology, set()).add(task.partition)

    # ------------------------------------------------------------------ active tasks

    def assign_active(self) -> Generator[None, None, None]:
        """Assign the active tasks, as a job.

        A task is assigned to its previous active member, else to a previous standby member (each only below the quota),
        else to the least loaded member of the least loaded process.
        """
        left: list[_Task] = []
        for tasks in self._by_partition(stateful=False):
            for task in tasks:
                before = self._active_before.get(task)
                if before is None or not self._assign_active_task(before, task):
                    left.append(task)
            yield
        rest: dict[str, list[_Task]] = {name: [] for name in self._spec.subtopologies}
        for number, task in enumerate(left, 1):
            before = self._least_loaded(self._standby_before.get(task), None)
            if before is None or not self._assign_active_task(before, task):
                rest[task.subtopology].append(task)
            if number % TASKS_PER_STEP == 0:
                yield
        queue = self._queue()
        for number, task in enumerate(chain.from_iterable(rest.values()), 1):
            process = queue.poll()
            member_id, count = process.add_task_to_least_loaded(task)
            self._placed_active(member_id, task, count)
            queue.add(process)
            if number % TASKS_PER_STEP == 0:
                yield

    def _assign_active_task(self, member_id: str, task: _Task) -> bool:
        process = self._process(member_id)
        if process.counts[member_id] >= self._active_quota.tasks_per_member:
            return False
        self._placed_active(member_id, task, process.add_task(member_id, task))
        return True

    def _placed_active(self, member_id: str, task: _Task, count: int) -> None:
        self._note(self.active, member_id, task)
        self._active_quota.record_count(count)
        self._quota.record_count(count)

    def _least_loaded(self, members: list[str] | None, task: _Task | None) -> str | None:
        """Return the least loaded of a task's previous standby members by process and member; the first if equal.

        ``task``: members in a process with this task are skipped. None if there is no member. Like Kafka, the final
        check is made for the process of the first member instead of that of the chosen one.
        """
        if not members:
            return None
        chosen = members[0]
        first = self._process(chosen)
        process_load, member_load = first.load, first.counts[chosen]
        for name in members[1:]:
            process = self._process(name)
            if process.load >= process_load or (task is not None and process.has_task(task)):
                continue
            if process.counts[name] < member_load:
                chosen, process_load, member_load = name, process.load, process.counts[name]
        return chosen if task is None or not first.has_task(task) else None

    # ------------------------------------------------------------------ standby tasks

    def assign_standby(self) -> Generator[None, None, None]:
        """Assign the standby tasks, never two of a task in one process, as a job.

        A task is assigned to its previous active member, else to a previous standby member (each only below the quota),
        else to the least loaded member of the least loaded process without the task; if there is none, there are fewer
        replicas.
        """
        rounds = list(self._by_partition(stateful=True))
        later: dict[str, list[tuple[_Task, int]]] = {name: [] for name in reversed(self._spec.subtopologies)}
        for tasks in reversed(rounds):
            for task in reversed(tasks):
                for replica in range(self._spec.standby_replicas):
                    if not self._assign_standby_task(task):
                        later[task.subtopology].append((task, self._spec.standby_replicas - replica))
                        break
            yield
        queue = self._queue()
        for number, (task, replicas) in enumerate(chain.from_iterable(later.values()), 1):
            for _ in range(replicas):
                if not self._assign_to_least_loaded(queue, task):
                    break
            if number % TASKS_PER_STEP == 0:
                yield

    def _assign_standby_task(self, task: _Task) -> bool:
        before = self._active_before.get(task)
        if before is not None and not self._process(before).has_task(task) and self._add_standby(before, task):
            return True
        before = self._least_loaded(self._standby_before.get(task), task)
        return before is not None and self._add_standby(before, task)

    def _add_standby(self, member_id: str, task: _Task) -> bool:
        process = self._process(member_id)
        if process.counts[member_id] >= self._quota.tasks_per_member:
            return False
        self._note(self.standby, member_id, task)
        self._quota.record_count(process.add_task(member_id, task))
        return True

    def _assign_to_least_loaded(self, queue: JavaPriorityQueue[_ProcessState], task: _Task) -> bool:
        """Assign a standby task to the least loaded process that does not have the task.

        Return False if there is none.
        """
        passed: list[_ProcessState] = []
        found = False
        while queue and not found:
            process = queue.poll()
            passed.append(process)
            if not process.has_task(task):
                member_id, count = process.add_task_to_least_loaded(task)
                self._note(self.standby, member_id, task)
                self._quota.record_count(count)
                found = True
        for process in reversed(passed):
            queue.add(process)
        return found


def assign_sticky(spec: StreamsGroupSpec) -> TaskAssignmentJob:
    """Return the target tasks by member id, as a job; there are no warm-up tasks. The group must have members."""
    assert spec.members
    work = _StickyAssignment(spec)
    yield from work.assign_active()
    if spec.standby_replicas > 0:
        yield from work.assign_standby()

    def tasks(roles: TasksByMember, name: str) -> dict[str, frozenset[int]]:
        return {subtopology: frozenset(numbers) for subtopology, numbers in roles.get(name, {}).items()}

    return {name: TasksTuple(tasks(work.active, name), tasks(work.standby, name)) for name in spec.members}
