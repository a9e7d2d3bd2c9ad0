"""One simulated run: nodes that meet what the seed has in store, their clients, then peace, and the reckoning."""

from __future__ import annotations

from typing import NamedTuple

import trio

from ottla.wire.records import Record
from sim.clients import PARTITIONS, TOPIC, Again, SimClient, SimConsumer, SimProducer, make_topic, read
from sim.faults import Swarm, disturb
from sim.lives import Lives
from sim.world import World

RUN_S = 40.0
SETTLED_WITHIN_S = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "num.partitions": str(PARTITIONS),
    "log.segment.bytes": "1048576",
}


class Result(NamedTuple):
    """What one run came to."""

    seed: int
    digest: str
    faults: dict[str, int]
    virtual_s: float
    violations: list[tuple[str, str]]
    acknowledged: int
    commits: int


class Scenario:
    """A run under way."""

    def __init__(self, seed: int, *, synced: bool = False) -> None:
        self.world = World(seed)
        self.swarm = Swarm.drawn(self.world.rng, synced=synced)
        self.settings = {**SETTINGS, "log.flush.interval.messages": "1"} if synced else SETTINGS
        self._done = trio.Event()

    async def run(self) -> None:
        """Faults for a while, then peace, then the reckoning."""
        world = self.world
        peace = trio.Event()
        async with trio.open_nursery() as everything:
            everything.start_soon(disturb, world, self.swarm, peace.is_set)
            everything.start_soon(self._work)
            everything.start_soon(Lives(world, self.swarm, self.settings, "/data").until, peace, RUN_S)
            await peace.wait()
            world.network.heal()
            world.draining = True
            await self._finish()
            everything.cancel_scope.cancel()

    async def _work(self) -> None:
        await make_topic(self.world)
        async with trio.open_nursery() as consumers:
            for number in range(2):
                consumers.start_soon(SimConsumer(self.world, f"consumer-{number}").run)
            async with trio.open_nursery() as producers:
                for number in range(2):
                    producers.start_soon(SimProducer(self.world, f"producer-{number}", number * 1_000_000).run)
            self._done.set()
            consumers.cancel_scope.cancel()

    async def _finish(self) -> None:
        """When the producers have been acknowledged everything: read it all and compare."""
        ledger = self.world.ledger
        with trio.move_on_after(SETTLED_WITHIN_S):
            await self._done.wait()
            client = SimClient(self.world, "reader")
            for partition in range(PARTITIONS):
                records = await read_all(client, TOPIC, partition)
                self.world.note(f"partition {partition}: {[(x.offset, x.value) for x in records]}")
                ledger.check_partition((TOPIC, partition), records)
            return
        ledger.violation("stuck", "clients were not served within 60 s after the faults had stopped")

    def result(self) -> Result:
        """The run in one line's worth of facts."""
        world, ledger = self.world, self.world.ledger
        calls = {name: host.disk.calls for name, host in sorted(world.hosts.items())}
        world.trace.add(repr((sorted(self.swarm.counted.items()), ledger.violations, calls)))
        return Result(
            world.seed,
            world.trace.digest(),
            dict(self.swarm.counted),
            world.now_s(),
            ledger.violations,
            ledger.acknowledged_count,
            ledger.commits,
        )


async def read_all(client: SimClient, topic: str, partition: int, start: int = 0) -> list[Record]:
    """A whole partition."""
    out: list[Record] = []
    while True:
        at = out[-1].offset + 1 if out else start
        try:
            more = await read(client, partition, at, 50, topic)
        except Again:
            client.forget_leaders()
            await client.sleep(0.1)
            continue
        if not more:
            return out
        out += more


def simulate(seed: int, *, synced: bool = False) -> Result:
    """Run one seed. The process must run under ``PYTHONHASHSEED=0`` for digests to be comparable."""
    scenario = Scenario(seed, synced=synced)
    scenario.world.run(scenario.run)
    return scenario.result()
