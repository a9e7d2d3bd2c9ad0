"""Base classes of the workload of a group: topics, members, and verification of its stability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator, list_offsets, offset_fetch
from sim.checkers.history import HistoryPartition
from sim.workload.clients import Address, ClusterService, RetriableError, SimClient

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation
    from sim.workload.groups.assigned_member import AssignedMember
    from sim.workload.groups.member_slots import SimGroupMember

LATEST = -1


class GroupWorkload(ABC):
    """Workload of one group in a run: creates its members, and verifies its results."""

    group: str
    topics: tuple[str, ...]

    def __init__(self, simulation: Simulation, service: ClusterService, ids: Mapping[bytes, str]) -> None:
        self._simulation = simulation
        self._service = service
        self._ids = ids
        """Names of topics by id."""

    @abstractmethod
    def member_factories(self) -> Iterator[Callable[[], SimGroupMember]]:
        """Yield, for each slot, the factory of the members that run in it one after the other."""

    @abstractmethod
    async def prepare(self, asker: SimClient) -> None:
        """Set up the group before members join, such as its settings. Raises RetriableError."""

    async def instability(self, asker: SimClient, members: Sequence[SimGroupMember]) -> str:
        """Return the reason why the group is not stable with these members, or has unread records; empty if it is."""
        try:
            return await self._find_instability(asker, members)
        except RetriableError as error:
            asker.invalidate_leaders()
            return str(error) or "no answer"

    @abstractmethod
    async def _find_instability(self, asker: SimClient, members: Sequence[SimGroupMember]) -> str:
        """Return the reason why the group is not stable, empty if it is; called by `instability`.

        Raises:
            RetriableError: no response, or an error response; `instability` returns its text as the reason.
        """

    @abstractmethod
    async def verify(self, asker: SimClient) -> None:
        """Verify the results of the group at the end of the run; report violations."""

    async def _coordinator(self, asker: SimClient) -> Address:
        found = (
            await asker.call(find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
        ).coordinators[0]
        if found.error_code:
            raise RetriableError(ErrorCode(found.error_code).name)
        return found.host, found.port

    async def _end(self, asker: SimClient, place: HistoryPartition) -> int:
        """Return the end offset of a partition, from its leader. Raises RetriableError."""
        topic = list_offsets.ListOffsetsTopic(place[0], [list_offsets.ListOffsetsPartition(place[1], -1, LATEST)])
        answer = await asker.call(list_offsets.ListOffsetsRequest(-1, topics=[topic]), 7, await asker.leader(*place))
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise RetriableError(ErrorCode(row.error_code).name)
        return int(row.offset)


class AssignedGroupWorkload(GroupWorkload):
    """Workload of a group in which each partition is read by exactly one member."""

    def __init__(self, simulation: Simulation, service: ClusterService, ids: Mapping[bytes, str]) -> None:
        super().__init__(simulation, service, ids)
        self._read: dict[HistoryPartition, set[int]] = {}
        """Offsets that a member has read, by partition."""

    async def prepare(self, asker: SimClient) -> None:
        """Do nothing: these groups need no preparation."""

    async def _find_unread(
        self, asker: SimClient, at: Address, wanted: Collection[HistoryPartition], members: Sequence[AssignedMember]
    ) -> str:
        """Return a text if a partition has not exactly one owner, or no committed offset at its end; else empty.

        Raises:
            RetriableError: no response, or an error response.
        """
        had = [place for x in members for place in x.positions]
        if sorted(had) != sorted(wanted):
            return f"{sorted(had)} is read of {sorted(wanted)}"
        for place in sorted(wanted):
            committed, end = await self._committed(asker, at, place), await self._end(asker, place)
            if committed < end:
                return f"{place} is read to {committed} of {end}"
        return ""

    async def _committed(self, asker: SimClient, at: Address, place: HistoryPartition) -> int:
        topic = offset_fetch.OffsetFetchRequestTopic(place[0], [place[1]])
        answer = await asker.call(offset_fetch.OffsetFetchRequest(self.group, [topic], require_stable=True), 7, at)
        rows = answer.topics[0].partitions if answer.topics else []
        if answer.error_code or (rows and rows[0].error_code):
            raise RetriableError("positions")
        return max(rows[0].committed_offset, 0) if rows else 0

    async def verify(self, asker: SimClient) -> None:
        """Report ``group-skip`` for offsets below a committed one that no member read, unless power was cut."""
        if self._simulation.ledger.power_cuts:
            return
        for place in [(topic, number) for topic in self.topics for number in range(self._service.partitions)]:
            committed = self._simulation.ledger.committed_to.get(place, 0)
            passed = sorted(set(range(committed)) - self._read.get(place, set()))
            if passed:
                detail = f"{place[0]}-{place[1]}: {passed[:10]} before {committed}"
                self._simulation.ledger.report_violation("group-skip", detail)
