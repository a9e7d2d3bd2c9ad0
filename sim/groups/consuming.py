"""The consumer group of a run: its topics, its members, and what must have come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe as cd
from sim.clients import Service, SimClient
from sim.groups.classic import ClassicMember
from sim.groups.consumers import ConsumerMember, Wants
from sim.groups.kind import ReadingKind
from sim.groups.ownership import Ownership
from sim.groups.reading import Reading

if TYPE_CHECKING:
    from sim.groups.seats import Member
    from sim.world import World

GROUP = "readers"
TOPICS = ("k0", "k1", "k2")


class Consuming(ReadingKind):
    """One consumer group."""

    group = GROUP
    topics = TOPICS
    wants = (
        Wants(TOPICS, None, TOPICS),
        Wants(TOPICS[:2], None, TOPICS[:2]),
        Wants(TOPICS[1:], None, TOPICS[1:]),
        Wants((), "k[02]", (TOPICS[0], TOPICS[2])),
        Wants(TOPICS[1:2], "k[0-1]", TOPICS[:2]),
        Wants((), "k.*", TOPICS),
    )

    def __init__(self, world: World, service: Service, ids: Mapping[bytes, str]) -> None:
        super().__init__(world, service, ids)
        self._shared = Reading(GROUP, Ownership(world.ledger, GROUP, world.now_s), ids, self._read)

    def makers(self) -> Iterator[Callable[[], Member]]:
        """Some of its members are somebody, others anybody; in some runs one speaks the older protocol, or two do."""
        classic = self._world.rng.choice(((), (), (1,), (0, 1)))
        for number, instance_id in enumerate((None, None, "somebody")):
            common = (self._world, f"reader-{number}", self._service, self._shared, self.wants)
            if number in classic:
                yield partial(ClassicMember, *common)
            else:
                yield partial(ConsumerMember, *common, instance_id)

    async def _wrong(self, asker: SimClient, members: Sequence[Member]) -> str:
        here = [x for x in members if isinstance(x, ConsumerMember | ClassicMember)]
        at = await self._coordinator(asker)
        told = (await asker.call(cd.ConsumerGroupDescribeRequest([GROUP]), 1, at)).groups[0]
        if told.error_code or told.group_state != "Stable":
            return f"{ErrorCode(told.error_code).name} {told.group_state}"
        if {x.member_id for x in told.members} != {x.id for x in here}:
            return f"members {sorted(x.member_id for x in told.members)} are not {sorted(x.id for x in here)}"
        wanted = {(topic, n) for x in here for topic in x.wants.topics for n in range(self._service.partitions)}
        return await self._unread(asker, at, wanted, here)
