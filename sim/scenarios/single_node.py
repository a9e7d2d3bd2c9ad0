"""Simulated run of a single node with the faults of a seed, its clients, and the verification at the end.

Runs of clusters inherit from it, those of a quorum of controllers do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from sim.checkers.anomalies import find_anomalies
from sim.engine.simulation import Simulation
from sim.faults.fault_plan import MAX_CLOCK_JUMP_IN_TRANSACTIONS_MS, FaultInjector, FaultPlan
from sim.faults.node_lifecycle import NodeLifecycle, run_with_faults
from sim.workload.admin_client import SimAdminClient
from sim.workload.classic_consumer import SimConsumer
from sim.workload.clients import (
    NODE,
    SINGLE_NODE,
    TOPIC,
    ClusterService,
    SimClient,
    SimProducer,
    create_topic,
    read_partition,
)
from sim.workload.exactly_once import ExactlyOnceWorkload
from sim.workload.fetch_client import SimFetcher
from sim.workload.groups.groups_workload import GroupsWorkload, node_settings
from sim.workload.log_dir_mover import SimLogDirMover

if TYPE_CHECKING:
    from ottla.broker.components.broker_components import BrokerComponents

RUN_S = 40.0
QUIESCENCE_TIMEOUT_S = 60.0
COMPACTED_TOPIC = "c"
COMPACTED_KEYS = 5
COMPACTION_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "1200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}

SMALL_REPLICA_FETCH = {"replica.fetch.max.bytes": "400"}
"""Small fetches for moves between log directories, so that a partition needs many and faults occur in between."""


class SimulationResult(NamedTuple):
    """Result of one run: trace digest, faults by kind, violations as (name, detail), and counts of client operations.

    ``faults`` has other counts as well, such as ``moves``. ``acknowledged``: records, in a quorum settings;
    ``commits``: offset commits; ``virtual_s``: simulated seconds.
    """

    seed: int
    digest: str
    faults: dict[str, int]
    virtual_s: float
    violations: list[tuple[str, str]]
    acknowledged: int
    commits: int


class SimulationScenario:
    """Simulated run of a single node with its clients; base class of runs of clusters."""

    def __init__(
        self,
        simulation: Simulation,
        fault_plan: FaultPlan,
        hosts: Sequence[str] = (NODE,),
        service: ClusterService = SINGLE_NODE,
    ) -> None:
        self.simulation = simulation
        self.fault_plan = fault_plan
        self.service = service
        for name in hosts:
            host = simulation.host(name)
            host.disk.holes, host.slow_s = fault_plan.holes, fault_plan.max_initial_sync_s
        self.admin = SimAdminClient(simulation, service=service)
        if not self.fault_plan.synced:
            self.simulation.ledger.on_power_cut.append(self.admin.power_cut)
        paths = fault_plan.dirs.split(",")
        self.log_dir_mover = SimLogDirMover(simulation, service, paths, COMPACTED_TOPIC) if len(paths) > 1 else None
        self.transactions: ExactlyOnceWorkload | None = None
        self.groups: GroupsWorkload | None = None
        self.lifecycles: dict[str, NodeLifecycle] = {}
        """Life cycles of the nodes by host."""
        self._done = trio.Event()

    def parts_by_host(self) -> dict[str, BrokerComponents]:
        """Return the components of the running nodes by host name; nodes that are still starting are left out."""
        found = {
            host: lifecycle.node.components for host, lifecycle in self.lifecycles.items() if lifecycle.node is not None
        }
        return {host: parts for host, parts in found.items() if parts is not None}

    def add_groups(self) -> None:
        """Add members of consumer, share and streams groups to the clients.

        Clock jumps are limited: a coordinator whose clock is far behind its written timestamps computes no new
        target assignment and resolves no regular expression, in Kafka as well.
        """
        self.fault_plan.max_clock_jump_ms = MAX_CLOCK_JUMP_IN_TRANSACTIONS_MS
        self.fault_plan.settings |= node_settings(self.simulation)
        self.groups = GroupsWorkload(self.simulation, self.service, self.fault_plan.counts, self.parts_by_host)

    async def run(self) -> None:
        """Run with faults, then without until all clients have ended, then verify; violations go to the ledger."""
        simulation = self.simulation
        disturber = FaultInjector(simulation, self.fault_plan, [NODE])
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            self.lifecycles[NODE] = NodeLifecycle(simulation, self.fault_plan)
            await run_with_faults(disturber, self.lifecycles.values(), RUN_S, everything)
            simulation.draining = True
            await self._finish()
            everything.cancel_scope.cancel()

    async def _work(self) -> None:
        simulation, service = self.simulation, self.service
        await create_topic(simulation, service=service)
        await create_topic(simulation, COMPACTED_TOPIC, COMPACTION_CONFIGS, service)
        async with trio.open_nursery() as consumers:
            for number in range(2):
                consumers.start_soon(SimConsumer(simulation, f"consumer-{number}", service).run)
            consumers.start_soon(SimFetcher(simulation, "fetcher", (TOPIC, COMPACTED_TOPIC), service).run)
            async with trio.open_nursery() as workers:
                for number in range(4 if self.fault_plan.synced else 2):
                    producer = SimProducer(simulation, f"producer-{number}", number * 1_000_000, service=service)
                    workers.start_soon(producer.run)
                workers.start_soon(
                    SimProducer(simulation, "keeper", 10_000_000, COMPACTED_TOPIC, COMPACTED_KEYS, service).run
                )
                workers.start_soon(self.admin.run)
                if self.transactions is not None:
                    workers.start_soon(self.transactions.run)
                if self.log_dir_mover is not None:
                    workers.start_soon(self.log_dir_mover.run)
                if self.groups is not None:
                    workers.start_soon(self.groups.run)
            self._done.set()
            consumers.cancel_scope.cancel()

    async def _finish(self) -> None:
        """Wait for the end of all clients, then verify all partitions; report ``stuck`` after 60 s in all."""
        with trio.move_on_after(QUIESCENCE_TIMEOUT_S):
            await self._done.wait()
            await self._verify(SimClient(self.simulation, "reader", self.service))
            return
        self.simulation.ledger.report_violation(
            "stuck", "clients were not served within 60 s after the faults had stopped"
        )

    async def _verify(self, client: SimClient) -> None:
        ledger = self.simulation.ledger
        for partition in range(self.service.partitions):
            ledger.verify_partition((TOPIC, partition), await read_partition(client, TOPIC, partition))
            ledger.verify_compacted_partition(
                (COMPACTED_TOPIC, partition), await read_partition(client, COMPACTED_TOPIC, partition)
            )
        if not ledger.power_cuts:
            for found in find_anomalies(self.simulation.history.operations(TOPIC)):
                if found.is_violation:
                    ledger.report_violation(found.name, found.detail)
        if self.transactions is not None:
            await self.transactions.verify()
        if self.log_dir_mover is not None:
            self.fault_plan.counts["between-directories"] = self.log_dir_mover.moves
            await client.retry_until_done(self.log_dir_mover.verify)
        if self.groups is not None:
            await self.groups.verify()
        await client.retry_until_done(self.admin.verify)
        for name, made in self.admin.topics.items():
            for partition in range(made.partitions):
                self.admin.verify_records(name, partition, await read_partition(client, name, partition))

    def result(self) -> SimulationResult:
        """Add the final counts to the trace, and return the result of the run; call it once, at the end."""
        simulation, ledger = self.simulation, self.simulation.ledger
        calls = {name: host.disk.calls for name, host in sorted(simulation.hosts.items())}
        simulation.trace.add(repr((sorted(self.fault_plan.counts.items()), ledger.violations, calls)))
        return SimulationResult(
            simulation.seed,
            simulation.trace.digest(),
            dict(self.fault_plan.counts),
            simulation.now_s(),
            ledger.violations,
            ledger.acknowledged_count,
            ledger.commits,
        )


def simulate_node(
    seed: int, *, synced: bool = False, groups: bool = False, listen: Callable[[str], None] | None = None
) -> SimulationResult:
    """Simulate a single node with one seed and return the result.

    Args:
        seed: the seed; digests are comparable if the process runs with ``PYTHONHASHSEED=0``.
        synced: every acknowledgement waits for an fsync, and the only faults are power cuts.
        groups: with consumer, share and streams groups.
        listen: called with each line of the trace.
    """
    simulation = Simulation(seed)
    fault_plan = FaultPlan.generate(simulation.rng, synced=synced)
    fault_plan.settings |= SMALL_REPLICA_FETCH
    scenario = SimulationScenario(simulation, fault_plan)
    if groups:
        scenario.add_groups()
    scenario.simulation.trace.listen = listen
    scenario.simulation.run(scenario.run)
    return scenario.result()
