"""Streams group in the workload of a simulated run: topics of the application, its threads, and verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_describe
from sim.checkers.assignment_checker import AssignmentChecker
from sim.workload.clients import ClusterService, SimClient
from sim.workload.groups.assigned_member import AssignedGroupState
from sim.workload.groups.group_workload import AssignedGroupWorkload
from sim.workload.groups.streams_member import SUBTOPOLOGIES, SimStreamsMember

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation
    from sim.workload.groups.member_slots import SimGroupMember

GROUP = "app"
PROCESSES = ("p0", "p0", "p1")
"""Process id of each thread."""


class StreamsGroupWorkload(AssignedGroupWorkload):
    """Workload of a streams group (KIP-1071) of three threads in two processes."""

    group = GROUP
    topics = tuple(SUBTOPOLOGIES.values())

    def __init__(self, simulation: Simulation, service: ClusterService, ids: Mapping[bytes, str]) -> None:
        super().__init__(simulation, service, ids)
        self._shared = AssignedGroupState(
            GROUP, AssignmentChecker(simulation.ledger, GROUP, simulation.now_s), ids, self._read
        )

    def member_factories(self) -> Iterator[Callable[[], SimGroupMember]]:
        """Yield the factory of the members (threads) of each slot."""
        for number, process in enumerate(PROCESSES):
            yield partial(SimStreamsMember, self._simulation, f"thread-{number}", self._service, self._shared, process)

    async def _find_instability(self, asker: SimClient, members: Sequence[SimGroupMember]) -> str:
        here = [x for x in members if isinstance(x, SimStreamsMember)]
        at = await self._coordinator(asker)
        response = (await asker.call(streams_group_describe.StreamsGroupDescribeRequest([GROUP]), 0, at)).groups[0]
        if response.error_code or response.group_state != "Stable":
            return f"{ErrorCode(response.error_code).name} {response.group_state}"
        if {x.member_id for x in response.members} != {x.id for x in here}:
            return f"members {sorted(x.member_id for x in response.members)} are not {sorted(x.id for x in here)}"
        wanted = [(topic, number) for topic in self.topics for number in range(self._service.partitions)]
        return await self._find_unread(asker, at, wanted, here)
