"""One group of a run, whatever its kind: its topics, who sits in it, and when it is at rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import list_offsets as lo
from sim.clients import Address, Again, Service, SimClient
from sim.history import Place

if TYPE_CHECKING:
    from sim.groups.seats import Member
    from sim.world import World

LATEST = -1


class Kind(ABC):
    """One group."""

    group: str
    topics: tuple[str, ...]

    def __init__(self, world: World, service: Service, ids: Mapping[bytes, str]) -> None:
        self._world = world
        self._service = service
        self._ids = ids
        """Names of topics by id."""

    @abstractmethod
    def makers(self) -> Iterator[Callable[[], Member]]:
        """What makes a member, for each seat."""

    @abstractmethod
    async def prepare(self, asker: SimClient) -> None:
        """What is to be done before anybody joins. Raises: Again."""

    async def unsettled(self, asker: SimClient, members: Sequence[Member]) -> str:
        """Why the group is not at rest with these members yet; nothing where it is."""
        try:
            return await self._wrong(asker, members)
        except Again as error:
            asker.forget_leaders()
            return str(error) or "no answer"

    @abstractmethod
    async def _wrong(self, asker: SimClient, members: Sequence[Member]) -> str:
        """The same. Raises: Again."""

    @abstractmethod
    async def reckon(self, asker: SimClient) -> None:
        """What must have come of it."""

    async def _coordinator(self, asker: SimClient) -> Address:
        found = (await asker.call(fc.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)).coordinators[0]
        if found.error_code:
            raise Again(ErrorCode(found.error_code).name)
        return found.host, found.port

    async def _end(self, asker: SimClient, place: Place) -> int:
        """Where a partition ends. Raises: Again."""
        topic = lo.ListOffsetsTopic(place[0], [lo.ListOffsetsPartition(place[1], -1, LATEST)])
        answer = await asker.call(lo.ListOffsetsRequest(-1, topics=[topic]), 7, await asker.leader(*place))
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise Again(ErrorCode(row.error_code).name)
        return int(row.offset)
