"""One simulated run: nodes that meet what the seed has in store, their clients, then peace, and the reckoning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from sim.admin import SimAdmin
from sim.anomalies import check
from sim.clients import ALONE, NODE, TOPIC, Service, SimClient, SimProducer, make_topic, read_all
from sim.consumers import SimConsumer
from sim.directories import SimRelocator
from sim.exactly_once import ExactlyOnce
from sim.faults import WORST_JUMP_IN_TRANSACTIONS_MS, Disturber, Swarm
from sim.fetchers import SimFetcher
from sim.groups.workload import Groups, settings
from sim.lives import Lives, until_peace
from sim.world import World

if TYPE_CHECKING:
    from ottla.broker.parts import BrokerComponents

RUN_S = 40.0
SETTLED_WITHIN_S = 60.0
COMPACTED = "c"
KEYS = 5
COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "1200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}

SMALL_PIECES = {"replica.fetch.max.bytes": "400"}
"""Of a move between directories: a partition takes many of them, and things go wrong in between."""


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

    def __init__(self, world: World, swarm: Swarm, hosts: Sequence[str] = (NODE,), service: Service = ALONE) -> None:
        self.world = world
        self.swarm = swarm
        self.service = service
        for name in hosts:
            host = world.host(name)
            host.disk.holes, host.slow_s = swarm.holes, swarm.slow_s
        self.admin = SimAdmin(world, service=service)
        if not self.swarm.synced:
            self.world.ledger.on_power_cut.append(self.admin.power_cut)
        paths = swarm.dirs.split(",")
        self.relocator = SimRelocator(world, service, paths, COMPACTED) if len(paths) > 1 else None
        self.transactions: ExactlyOnce | None = None
        self.groups: Groups | None = None
        self.lives: dict[str, Lives] = {}
        """By host."""
        self._done = trio.Event()

    def parts_by_host(self) -> dict[str, BrokerComponents]:
        """The parts of the nodes that are up."""
        found = {host: lives.node.components for host, lives in self.lives.items() if lives.node is not None}
        return {host: parts for host, parts in found.items() if parts is not None}

    def with_groups(self) -> None:
        """Have members of the groups of Kafka 4 among the clients. Their coordinator goes by times that it has written:
        in Kafka, too, a clock that is far behind them keeps a group from its next target, or from what a pattern means.
        """
        self.swarm.worst_jump_ms = WORST_JUMP_IN_TRANSACTIONS_MS
        self.swarm.settings |= settings(self.world)
        self.groups = Groups(self.world, self.service, self.swarm.counted, self.parts_by_host)

    async def run(self) -> None:
        """Faults for a while, then peace, then the reckoning."""
        world = self.world
        disturber = Disturber(world, self.swarm, [NODE])
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            self.lives[NODE] = Lives(world, self.swarm)
            await until_peace(disturber, self.lives.values(), RUN_S, everything)
            world.draining = True
            await self._finish()
            everything.cancel_scope.cancel()

    async def _work(self) -> None:
        world, service = self.world, self.service
        await make_topic(world, service=service)
        await make_topic(world, COMPACTED, COMPACTION, service)
        async with trio.open_nursery() as consumers:
            for number in range(2):
                consumers.start_soon(SimConsumer(world, f"consumer-{number}", service).run)
            consumers.start_soon(SimFetcher(world, "fetcher", (TOPIC, COMPACTED), service).run)
            async with trio.open_nursery() as workers:
                for number in range(4 if self.swarm.synced else 2):
                    producer = SimProducer(world, f"producer-{number}", number * 1_000_000, service=service)
                    workers.start_soon(producer.run)
                workers.start_soon(SimProducer(world, "keeper", 10_000_000, COMPACTED, KEYS, service).run)
                workers.start_soon(self.admin.run)
                if self.transactions is not None:
                    workers.start_soon(self.transactions.run)
                if self.relocator is not None:
                    workers.start_soon(self.relocator.run)
                if self.groups is not None:
                    workers.start_soon(self.groups.run)
            self._done.set()
            consumers.cancel_scope.cancel()

    async def _finish(self) -> None:
        """When the clients have been acknowledged everything: read it all and compare."""
        with trio.move_on_after(SETTLED_WITHIN_S):
            await self._done.wait()
            await self._reckon(SimClient(self.world, "reader", self.service))
            return
        self.world.ledger.violation("stuck", "clients were not served within 60 s after the faults had stopped")

    async def _reckon(self, client: SimClient) -> None:
        ledger = self.world.ledger
        for partition in range(self.service.partitions):
            ledger.check_partition((TOPIC, partition), await read_all(client, TOPIC, partition))
            ledger.check_compacted((COMPACTED, partition), await read_all(client, COMPACTED, partition))
        if not ledger.power_cuts:
            for found in check(self.world.history.ops(TOPIC)):
                if found.bad:
                    ledger.violation(found.name, found.detail)
        if self.transactions is not None:
            await self.transactions.reckon()
        if self.relocator is not None:
            self.swarm.counted["between-directories"] = self.relocator.moves
            await client.until_done(self.relocator.check)
        if self.groups is not None:
            await self.groups.reckon()
        await client.until_done(self.admin.check)
        for name, made in self.admin.topics.items():
            for partition in range(made.partitions):
                self.admin.check_records(name, partition, await read_all(client, name, partition))

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


def simulate(
    seed: int, *, synced: bool = False, groups: bool = False, listen: Callable[[str], None] | None = None
) -> Result:
    """Run one seed; ``groups``: with members of the groups of Kafka 4; ``listen`` is told each event.

    The process must run under ``PYTHONHASHSEED=0`` for digests to be comparable.
    """
    world = World(seed)
    swarm = Swarm.drawn(world.rng, synced=synced)
    swarm.settings |= SMALL_PIECES
    scenario = Scenario(world, swarm)
    if groups:
        scenario.with_groups()
    scenario.world.trace.listen = listen
    scenario.world.run(scenario.run)
    return scenario.result()
