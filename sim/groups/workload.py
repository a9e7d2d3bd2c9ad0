"""The groups of Kafka 4 in a simulated run: topics, who fills them, who sits in the groups, and the reckoning.

Once nothing goes wrong any more each group is at rest within `SETTLED_S`, with its members and nobody else in it, and
has read all there is: else it is ``group-unstable``. ``group-skip``: a position went past a record that nobody read.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.wire.messages import metadata as md
from sim.clients import Again, Service, SimClient, SimProducer, make_topic, read_all
from sim.groups.consuming import Consuming
from sim.groups.kind import Kind
from sim.groups.locks import Living
from sim.groups.seats import Seat
from sim.groups.sharing import LIMIT, STATE_PARTITIONS, Shared
from sim.groups.streaming import Streaming
from sim.groups.watch import Watch

if TYPE_CHECKING:
    from sim.world import World

FIRST_VALUE = 40_000_000
VALUES_EACH = 1_000_000
SETTLED_S = 40.0
LOOK_S = 0.5
MOST_UPDATES = 60
LONGEST_INTERVAL_MS = 1500
FED_S = 0.6
MOST_FED = 4


def settings(world: World) -> dict[str, str]:
    """What nodes are started with whose groups have no time to lose."""
    interval = int(world.rng.random() * LONGEST_INTERVAL_MS)
    out: dict[str, str] = {}
    for kind in ("consumer", "share", "streams"):
        out |= {
            f"group.{kind}.session.timeout.ms": "5000",
            f"group.{kind}.min.session.timeout.ms": "5000",
            f"group.{kind}.heartbeat.interval.ms": "500",
            f"group.{kind}.min.heartbeat.interval.ms": "500",
            f"group.{kind}.assignment.interval.ms": str(interval),
        }
    lock_ms = 1000 + int(world.rng.random() * 2000)
    return out | {
        "group.streams.num.standby.replicas": str(int(world.rng.random() * 2)),
        "group.streams.initial.rebalance.delay.ms": str(int(world.rng.random() * 2000)),
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.delivery.count.limit": str(LIMIT),
        "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
        "share.coordinator.snapshot.update.records.per.snapshot": str(int(world.rng.random() * MOST_UPDATES)),
    }


class Groups:
    """All of it."""

    def __init__(self, world: World, service: Service, counted: Counter[str], living: Living) -> None:
        self._world = world
        self._service = service
        self._counted = counted
        self._ids: dict[bytes, str] = {}
        self._watch = Watch(world, living)
        self.seats: list[Seat] = []
        self.is_quiet = False
        """Whether nothing goes wrong with members."""
        self.kinds: list[Kind] = [
            Consuming(world, service, self._ids),
            Shared(world, service, self._ids, living),
            Streaming(world, service, self._ids),
        ]
        self._topics = [topic for kind in self.kinds for topic in kind.topics]

    @property
    def names(self) -> list[str]:
        """Of the groups."""
        return [kind.group for kind in self.kinds]

    async def run(self) -> None:
        """Until the world says that it is enough, and every group is at rest."""
        world = self._world
        for topic in self._topics:
            await make_topic(world, topic, service=self._service)
        asker = SimClient(world, "group-asker", self._service)
        for topic in self._topics:
            self._ids[await asker.until_done(partial(_id_of, asker, topic))] = topic
        for kind in self.kinds:
            await asker.until_done(partial(kind.prepare, asker))
        seats = self.seats
        seats += [Seat(world, kind.group, make, self._counted) for kind in self.kinds for make in kind.makers()]
        for seat in seats if self.is_quiet else ():
            seat.calm_down()
        async with trio.open_nursery() as members:
            members.start_soon(self._watch.run)
            for seat in seats:
                members.start_soon(seat.run)
            await self._feed()
            for seat in seats:
                seat.calm_down()
            world.note("groups calm down")
            await self._settle(asker, seats)
            members.cancel_scope.cancel()
        asker.drop()

    async def _feed(self) -> None:
        """Write to the topics until it is enough."""
        world, service, rng = self._world, self._service, self._world.rng
        feeders = [SimProducer(world, f"feeder-{topic}", FIRST_VALUE, topic, service=service) for topic in self._topics]
        nexts = dict.fromkeys(self._topics, FIRST_VALUE)
        async with trio.open_nursery() as nursery:

            async def one(feeder: SimProducer, topic: str) -> None:
                while not world.draining:
                    count = 1 + int(rng.random() * MOST_FED)
                    values = list(range(nexts[topic], nexts[topic] + count))
                    nexts[topic] += count
                    await feeder.send(int(rng.random() * service.partitions), values)
                    await feeder.sleep(rng.random() * FED_S * len(feeders))
                feeder.drop()

            for feeder, topic in zip(feeders, self._topics, strict=True):
                nursery.start_soon(one, feeder, topic)

    async def _settle(self, asker: SimClient, seats: list[Seat]) -> None:
        """Wait until every group is at rest, or has had its time."""
        world, since = self._world, self._world.now_s()
        for kind in self.kinds:
            while True:
                members = [seat.member for seat in seats if seat.member is not None and seat.group == kind.group]
                wrong = await kind.unsettled(asker, members)
                if not wrong:
                    break
                if world.now_s() > since + SETTLED_S:
                    world.ledger.violation("group-unstable", f"{kind.group} after {SETTLED_S:.0f} s: {wrong}")
                    break
                await trio.sleep(LOOK_S)
            world.note(f"{kind.group} is at rest")

    async def reckon(self) -> None:
        """Read all there is once more, and judge it."""
        reader = SimClient(self._world, "group-reader", self._service)
        for topic in self._topics:
            for number in range(self._service.partitions):
                self._world.ledger.check_partition((topic, number), await read_all(reader, topic, number))
        for kind in self.kinds:
            await kind.reckon(reader)


async def _id_of(client: SimClient, topic: str) -> bytes:
    answer = await client.call(md.MetadataRequest([md.MetadataRequestTopic(name=topic)], False), 12)
    if answer.topics[0].error_code:
        raise Again("it is not known yet")
    return bytes(answer.topics[0].topic_id)
