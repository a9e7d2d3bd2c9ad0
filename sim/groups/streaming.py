"""The streams group of a run: its application's topics, its threads, and what must have come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_describe as sd
from sim.clients import Service, SimClient
from sim.groups.kind import ReadingKind
from sim.groups.ownership import Ownership
from sim.groups.reading import Reading
from sim.groups.streamers import PARTS, StreamsMember

if TYPE_CHECKING:
    from sim.groups.seats import Member
    from sim.world import World

GROUP = "app"
PROCESSES = ("p0", "p0", "p1")
"""Of each thread."""


class Streaming(ReadingKind):
    """One streams group."""

    group = GROUP
    topics = tuple(PARTS.values())

    def __init__(self, world: World, service: Service, ids: Mapping[bytes, str]) -> None:
        super().__init__(world, service, ids)
        self._shared = Reading(GROUP, Ownership(world.ledger, GROUP, world.now_s), ids, self._read)

    def makers(self) -> Iterator[Callable[[], Member]]:
        """What makes a thread, for each seat."""
        for number, process in enumerate(PROCESSES):
            yield partial(StreamsMember, self._world, f"thread-{number}", self._service, self._shared, process)

    async def _wrong(self, asker: SimClient, members: Sequence[Member]) -> str:
        here = [x for x in members if isinstance(x, StreamsMember)]
        at = await self._coordinator(asker)
        told = (await asker.call(sd.StreamsGroupDescribeRequest([GROUP]), 0, at)).groups[0]
        if told.error_code or told.group_state != "Stable":
            return f"{ErrorCode(told.error_code).name} {told.group_state}"
        if {x.member_id for x in told.members} != {x.id for x in here}:
            return f"members {sorted(x.member_id for x in told.members)} are not {sorted(x.id for x in here)}"
        wanted = [(topic, number) for topic in self.topics for number in range(self._service.partitions)]
        return await self._unread(asker, at, wanted, here)
