"""Members of a streams group (KIP-1071): threads of an application with tasks.

The application has two subtopologies: one is stateful, with standby tasks; the other is not. An active task reads one
partition of its subtopology's topic. ``TaskInOneRole``: a thread has each task in one role only.

A thread without a response joins again: Kafka 4.3.1 does not repeat a lost assignment.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_heartbeat
from sim.checkers.history import HistoryPartition
from sim.workload.clients import ClusterService, RetriableError, UnknownOutcome
from sim.workload.groups.assigned_member import FENCED_ERRORS, AssignedGroupState, AssignedMember
from sim.workload.groups.member_slots import MemberEnded

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

REBALANCE_MS = 4_000
LEAVING = -1
REPEATED_SHARE = 0.1
"""Share of heartbeats that report the tasks although they have not changed."""
CHANGELOG = "app-store-changelog"
SUBTOPOLOGIES = {"0": "w0", "1": "w1"}
"""Subtopologies of the application, each with its source topic."""
TasksBySubtopology = dict[str, set[int]]
TaskIdLists = list[streams_group_heartbeat.StreamsGroupHeartbeatResponseTaskIds] | None


def build_topology() -> streams_group_heartbeat.Topology:
    """Return the topology of the application for a heartbeat: two subtopologies, of which the first has a store."""
    stores = [streams_group_heartbeat.TopicInfo(CHANGELOG)]
    return streams_group_heartbeat.Topology(
        0,
        [
            streams_group_heartbeat.Subtopology(name, [topic], [], stores if name == "0" else [])
            for name, topic in SUBTOPOLOGIES.items()
        ],
    )


class SimStreamsMember(AssignedMember):
    """Thread of a streams application, from join to leave."""

    def __init__(
        self, simulation: Simulation, name: str, service: ClusterService, shared: AssignedGroupState, process: str
    ) -> None:
        super().__init__(simulation, name, service, shared)
        self._process = process
        self._endpoint = simulation.rng.random() < 0.5
        self._standby: TasksBySubtopology = {}
        self._reported_state: tuple[list[HistoryPartition], TasksBySubtopology] | None = None

    def change_subscription(self) -> None:
        """Do nothing: the topics of an application are fixed."""

    def _reset_reported_state(self) -> None:
        self._reported_state = None

    def _is_state_reported(self) -> bool:
        return self._reported_state is None or self._reported_state == (sorted(self.positions), self._standby)

    def _abandon(self) -> None:
        self._standby = {}
        super()._abandon()

    def _request(self) -> streams_group_heartbeat.StreamsGroupHeartbeatRequest:
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(self.group, self.id, self.epoch)
        if self.epoch == 0:
            request.topology = build_topology()
            request.process_id = self._process
            request.client_tags = []
            if self._endpoint:
                request.user_endpoint = streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint(self.name, 1234)
        if self._reported_state is None:
            request.rebalance_timeout_ms = REBALANCE_MS
        if not (self._reported_state and self._is_state_reported()) or self.simulation.rng.random() < REPEATED_SHARE:
            active: TasksBySubtopology = {}
            for part, topic in SUBTOPOLOGIES.items():
                numbers = {number for name, number in self.positions if name == topic}
                active |= {part: numbers} if numbers else {}
            request.active_tasks, request.standby_tasks, request.warmup_tasks = (
                _to_task_ids(active),
                _to_task_ids(self._standby),
                [],
            )
        return request

    async def _beat(self) -> None:
        """Send a heartbeat and process the response. Raises RetriableError."""
        began, cuts = self._book.next_event(), self.simulation.ledger.power_cuts
        fields = (sorted(self.positions), self._standby)
        try:
            answer = await self.call_coordinator(self._request(), 0)
        except UnknownOutcome:
            self._abandon()
            raise
        code = answer.error_code
        self.check_expected_error(code, "heartbeat")
        if code in FENCED_ERRORS:
            self._abandon()
        if code:
            raise RetriableError(ErrorCode(code).name)
        self._reported_state = fields
        self._on_epoch(answer.member_epoch, began, cuts)
        if answer.active_tasks is not None:
            active, standby = _from_task_ids(answer.active_tasks), _from_task_ids(answer.standby_tasks)
            for part, numbers in active.items():
                if numbers & standby.get(part, set()):
                    self.simulation.ledger.report_violation(
                        "TaskInOneRole", f"{self.id}: {part} {numbers} and {standby[part]}"
                    )
            self._standby = standby
            places = [(SUBTOPOLOGIES[part], number) for part, numbers in active.items() for number in numbers]
            self._on_target(places, began, cuts)

    async def _leave_group(self, *, for_good: bool) -> None:
        """Leave permanently; afterwards a commit must be rejected. Raises MemberEnded always."""
        self._book.on_member_removed(self.id)
        cuts = self.simulation.ledger.power_cuts
        with suppress(RetriableError):
            answer = await self.call_coordinator(
                streams_group_heartbeat.StreamsGroupHeartbeatRequest(self.group, self.id, LEAVING), 0
            )
            self.check_expected_error(answer.error_code, "goodbye")
            if not answer.error_code:
                await self._commit_after_leaving(cuts)
        raise MemberEnded("left")


def _to_task_ids(tasks: TasksBySubtopology) -> list[streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds]:
    return [
        streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds(part, sorted(numbers))
        for part, numbers in sorted(tasks.items())
    ]


def _from_task_ids(rows: TaskIdLists) -> TasksBySubtopology:
    return {row.subtopology_id: set(row.partitions) for row in rows or () if row.partitions}
