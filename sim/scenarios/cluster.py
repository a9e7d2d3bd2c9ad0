"""Simulated run of several nodes: faults, then a stable phase with progress, then verification.

Violations besides those of the checkers: ``stuck`` (a partition accepts no record within 15 s after the faults),
``isr-not-full`` (within 30 s), ``copies-differ`` (replicas, or metadata logs), ``no-failover`` (a partition accepts no
record although only one node is unreachable).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.node import Node
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.storage_formatter import FormatPlan, format_directories
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from sim.checkers.anomalies import find_anomalies
from sim.checkers.cluster_invariants import ClusterInvariants, LiveNodes, iterate_partitions, newest_image
from sim.checkers.replica_comparison import find_replica_differences, read_replica
from sim.engine.hosts import SimHost
from sim.engine.simulation import Simulation
from sim.faults.fault_plan import DELAYED_CLIENTS, MAX_CLOCK_JUMP_IN_TRANSACTIONS_MS, FaultInjector, FaultPlan
from sim.faults.node_lifecycle import NodeLifecycle, StopPolicy, run_with_faults
from sim.scenarios.single_node import COMPACTED_KEYS, COMPACTED_TOPIC, SimulationResult, SimulationScenario
from sim.workload.clients import PORT, TOPIC, ClusterService, SimClient, SimProducer
from sim.workload.exactly_once import ExactlyOnceWorkload
from sim.workload.replica_mover import SimReplicaMover

CONTROLLER_PORT = 9093
CLUSTER_ID = "simulatedclusterAAAAAA"
RUN_S = 40.0
WRITABLE_TIMEOUT_S = 15.0
ISR_TIMEOUT_S = 30.0
REPLICAS_EQUAL_TIMEOUT_S = 10.0
FAILOVER_S = 14.0
"""Time for a failover: a session, elections of the quorum, which restart sessions, and retries of clients."""
ISOLATED_NODE_SHARE = 0.5
"""Share of runs in which a node is isolated once more after the faults."""
POLL_INTERVAL_S = 0.2
REQUEST_TIMEOUT_S = 3.0
REPLACED_DISK_SHARE = 0.5
"""Probability for each log directory of a node that lost power to be empty."""
MOVED_TOPICS = (TOPIC, COMPACTED_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
PROBES_FROM = 50_000_000
SHARED_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}


def node_settings(number: int, names: list[str], apart: int = 0) -> dict[str, str]:
    """Return the settings of a node; none if it is alone. With ``apart``, that many are controllers, others brokers."""
    if len(names) == 1:
        return {}
    replicas = str(min(3, len(names) - apart))
    voters = names[:apart] or names
    listens = {"broker": f"PLAINTEXT://n{number}:{PORT}", "controller": f"CONTROLLER://n{number}:{CONTROLLER_PORT}"}
    roles = list(listens)
    if apart:
        roles = ["controller"] if number <= apart else ["broker"]
    return {
        **SHARED_SETTINGS,
        "process.roles": ",".join(roles),
        "node.id": str(number),
        "listeners": ",".join(listens[role] for role in roles),
        "controller.quorum.voters": ",".join(f"{i}@{x}:{CONTROLLER_PORT}" for i, x in enumerate(voters, 1)),
        "broker.rack": f"rack{number}",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "2" if len(names) > 1 else "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "2" if len(names) > 1 else "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3000",
        "min.insync.replicas": "2" if len(names) > 1 else "1",
    }


def format_host(host: SimHost, number: int, fault_plan: FaultPlan) -> None:
    """Format the log directories of a host for static voters, as ``ottla format`` does."""
    session = host.disk.session()
    paths = dict.fromkeys([*fault_plan.dirs.split(","), fault_plan.settings.get("metadata.log.dir", "")])
    directories = [LogDirectory(session, path) for path in paths if path]
    named = fault_plan.settings.get("metadata.log.dir")
    metadata = next(x for x in directories if x.path == (named or directories[0].path))
    levels = {"transaction.version": fault_plan.transactions} if fault_plan.transactions else {}
    plan = FormatPlan(number, CLUSTER_ID, bootstrap_feature_levels(None, levels, dynamic_quorum=False))
    ids = (bytes([2, number, *index.to_bytes(14, "big")]) for index in range(1, 100))
    for _ in format_directories(directories, metadata, plan, host.clock.wall_ms(), lambda: next(ids)):
        pass
    session.kill()


class ClusterStopPolicy(StopPolicy):
    """Policy for clusters: one broker at a time may lose unsynced data, until it is in all ISRs; any controller may."""

    def __init__(self, cluster: ClusterScenario) -> None:
        super().__init__(cluster.simulation, cluster.fault_plan)
        self._cluster = cluster
        self._weak: str | None = None
        self._epoch_then = -1
        self._rng = random.Random(f"disks {cluster.simulation.seed}")

    def may_stop_uncleanly(self, host: str) -> bool:
        """Return False while the disk of another broker is being refilled. Controllers sync all their data."""
        return self._weak in (None, host) or host not in self._cluster.brokers or self._is_back()

    def power_cut(self, host: str, node: Node) -> bool:
        """Return True for a controller, or if all others run and every ISR is full; kills are cancelled then."""
        cluster = self._cluster
        if host not in cluster.brokers:
            return True
        if not self.may_stop_uncleanly(host) or not cluster.are_others_alive(host) or not cluster.is_full():
            return False
        number = cluster.numbers[host]
        self._weak = host
        self._epoch_then = cluster.image().brokers[number].broker_epoch
        for lifecycle in cluster.lifecycles.values():
            if lifecycle.process is not None:
                lifecycle.process.session.kill_at = lifecycle.process.session.fault = None
        return True

    def replaced_dirs(self, host: str) -> list[str]:
        """Return random log directories of a broker, never that of the metadata log, which a static voter needs."""
        fault_plan = self._cluster.fault_plan
        if host not in self._cluster.brokers:
            return []
        paths = fault_plan.dirs.split(",")
        if "metadata.log.dir" not in fault_plan.settings:
            del paths[0]
        return [path for path in paths if self._rng.random() < REPLACED_DISK_SHARE]

    def _is_back(self) -> bool:
        assert self._weak is not None
        image, number = self._cluster.image(), self._cluster.numbers[self._weak]
        broker = image.brokers.get(number)
        back = broker is not None and broker.broker_epoch > self._epoch_then and not broker.fenced
        if back and all(number in x.isr for _, _, x in iterate_partitions(image) if number in x.replicas):
            self._weak = None
        return self._weak is None


class ClusterScenario(SimulationScenario):
    """Simulated run of a cluster with faults, and its verification."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        run_s: float = RUN_S,
        transactions: int = 0,
        *,
        only_late: bool = False,
        moves: bool = False,
        apart: int = 0,
        groups: bool = False,
    ) -> None:
        """Create a run; ``transactions``: protocol version of transactional clients; 0: none.

        ``only_late``: the only faults are delayed client requests. ``moves``: with reassignments. ``apart``: number of
        additional controllers; ``nodes`` are brokers only then. ``groups``: with consumer, share and streams groups.
        """
        simulation = Simulation(seed)
        self.numbers = {f"n{number}": number for number in range(1, apart + nodes + 1)}
        self.brokers = {name: number for name, number in self.numbers.items() if number > apart}
        names = list(self.numbers)
        service = ClusterService(
            tuple((x, PORT) for x in self.brokers),
            replicas=min(3, nodes),
            timeout_s=REQUEST_TIMEOUT_S,
            has_checksums=True,
        )
        fault_plan = FaultPlan.generate_for_cluster(simulation.rng)
        fault_plan.transactions = transactions
        super().__init__(simulation, fault_plan, names, service)
        if transactions:
            self.transactions = ExactlyOnceWorkload(simulation, service, transactions)
            fault_plan.fault_kinds = list(dict.fromkeys([*fault_plan.fault_kinds, DELAYED_CLIENTS]))
            fault_plan.max_clock_jump_ms = MAX_CLOCK_JUMP_IN_TRANSACTIONS_MS
        if groups:
            self.add_groups()
        if only_late:
            fault_plan.use_only_delays()
        self._run_s = run_s
        self._mover = (
            SimReplicaMover(simulation, self.image, list(self.brokers.values()), MOVED_TOPICS, service)
            if moves
            else None
        )
        guard = ClusterStopPolicy(self)
        self.lifecycles = {
            name: NodeLifecycle(simulation, self.fault_plan, number, name, node_settings(number, names, apart), guard)
            for name, number in self.numbers.items()
        }
        for name, number in self.numbers.items() if nodes > 1 else ():
            format_host(simulation.host(name), number, self.fault_plan)
            simulation.host(name).journaled = True  # otherwise the oldest segment may be lost undetectably

    # ------------------------------------------------------------------ state of the nodes

    def live_nodes(self) -> LiveNodes:
        """Return the components of the running nodes by node id."""
        return {self.numbers[name]: parts for name, parts in self.parts_by_host().items()}

    def image(self) -> MetadataImage:
        """Return the metadata image with the highest offset on a running node; an empty one without a node."""
        return newest_image(self.live_nodes())

    def are_others_alive(self, host: str) -> bool:
        """Return True if every other broker runs with the broker epoch of the image."""
        image, here = self.image(), self.numbers[host]
        known = [
            number
            for number, parts in self.live_nodes().items()
            if number != here and number in image.brokers
            and image.brokers[number].broker_epoch == parts.lifecycle.broker_epoch
        ]  # fmt: skip
        return len(known) == len(self.brokers) - 1

    def is_full(self) -> bool:
        """Return True if every broker is unfenced, and every ISR is full with a leader."""
        image = self.image()
        there = len([x for x in image.brokers.values() if not x.fenced]) == len(self.brokers)
        return there and all(
            x.leader >= 0 and sorted(x.isr) == sorted(x.replicas) for _, _, x in iterate_partitions(image)
        )  # fmt: skip

    async def wait_until_full(self) -> None:
        """Wait until `is_full`, without a time limit."""
        while True:
            if self.is_full():
                return
            await trio.sleep(POLL_INTERVAL_S)

    # ------------------------------------------------------------------ the run

    async def run(self) -> None:
        """Run with faults, then the stable phase, in some runs with an isolated node, then verify."""
        simulation = self.simulation
        disturber = FaultInjector(simulation, self.fault_plan, list(self.numbers))
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            everything.start_soon(ClusterInvariants(simulation, self.live_nodes).run)
            several, die = len(self.numbers) > 1, bool(self.fault_plan.stop_kinds)
            async with trio.open_nursery() as moving:
                if self._mover is not None:
                    moving.start_soon(self._mover.run)
                await run_with_faults(
                    disturber, self.lifecycles.values(), self._run_s, everything, disturbs=several, die=die
                )
                moving.cancel_scope.cancel()
            if self._mover is not None:
                self.fault_plan.counts["moves"] = self._mover.moves
                self._mover.close_connections()
            simulation.network.close_half_open()
            simulation.trace_event("peace")
            await self._verify_progress()
            if several and not simulation.ledger.violations and simulation.rng.random() < ISOLATED_NODE_SHARE:
                await self._isolate_node()
            simulation.draining = True
            await self._finish()
            everything.cancel_scope.cancel()

    async def _verify_progress(self) -> None:
        """Wait until every partition accepts a record and every ISR is full; report ``stuck`` or ``isr-not-full``."""
        simulation, began = self.simulation, self.simulation.now_s()
        written = await self._write_everywhere(PROBES_FROM, WRITABLE_TIMEOUT_S)
        if len(written) < self.probed:
            simulation.ledger.report_violation(
                "stuck", f"15 s after the faults had stopped only {written} took a record"
            )
        while not self.is_full():
            if simulation.now_s() > began + ISR_TIMEOUT_S:
                simulation.ledger.report_violation(
                    "isr-not-full", f"30 s after the faults had stopped: {self._describe_missing()}"
                )
                return
            await trio.sleep(POLL_INTERVAL_S)
        simulation.trace_event("every isr is full")

    async def _isolate_node(self) -> None:
        """Isolate a random node; report ``no-failover`` if a partition takes no record, then ``isr-not-full``."""
        simulation, began = self.simulation, self.simulation.now_s()
        host = simulation.host(simulation.rng.choice(list(self.numbers)))
        session_s = int(self.fault_plan.settings.get("broker.session.timeout.ms", "9000")) / 1000
        within_s = session_s + FAILOVER_S
        host.inbound_cut_until = host.outbound_cut_until = began + within_s
        simulation.trace_event(f"{host.name} is out of reach for {within_s} s")
        written = await self._write_everywhere(PROBES_FROM + 500, within_s)
        if len(written) < self.probed:
            problem = f"{within_s} s after {host.name} was out of reach only {written} took a record"
            simulation.ledger.report_violation("no-failover", problem)
        await trio.sleep(max(began + within_s - simulation.now_s(), 0))
        simulation.network.restore_links()
        while not self.is_full():
            if simulation.now_s() > began + within_s + ISR_TIMEOUT_S:
                simulation.ledger.report_violation(
                    "isr-not-full", f"30 s after {host.name} was back: {self._describe_missing()}"
                )
                return
            await trio.sleep(POLL_INTERVAL_S)

    @property
    def probed(self) -> int:
        """Number of partitions that `_write_everywhere` writes to."""
        return 2 * self.service.partitions

    async def _write_everywhere(self, first: int, within_s: float) -> list[str]:
        """Write a record to every partition; return the partitions that acknowledged it within ``within_s``."""
        written: list[str] = []

        async def probe(topic: str, partition: int) -> None:
            keys = COMPACTED_KEYS if topic == COMPACTED_TOPIC else 0
            value = first + 1000 * len(topic) + partition
            prober = SimProducer(self.simulation, f"prober-{topic}-{partition}", value, topic, keys, self.service)
            await prober.send(partition, [value])
            prober.close_connections()
            written.append(f"{topic}-{partition}")

        async with trio.open_nursery() as probes:
            for topic in (TOPIC, COMPACTED_TOPIC):
                for number in range(self.service.partitions):
                    probes.start_soon(probe, topic, number)
            probes.cancel_scope.deadline = trio.current_time() + within_s
        return sorted(written)

    def _describe_missing(self) -> str:
        image = self.image()
        bad = [
            f"{n}-{i} {x.leader} of {x.isr}"
            for n, i, x in iterate_partitions(image)
            if sorted(x.isr) != sorted(x.replicas)
        ]
        gone = [number for number in self.brokers.values() if number not in image.unfenced_brokers()]
        return f"brokers {gone} are not there; {', '.join(bad[:8])}"

    async def _verify(self, client: SimClient) -> None:
        await super()._verify(client)
        for found in find_anomalies(self.simulation.history.operations(TOPIC)):
            if found.is_violation:
                self.simulation.ledger.report_violation(found.name, found.detail)
        for _ in range(int(REPLICAS_EQUAL_TIMEOUT_S / POLL_INTERVAL_S)):
            if not self._replica_differences():
                return
            await trio.sleep(POLL_INTERVAL_S)
        for detail in self._replica_differences()[:5]:
            self.simulation.ledger.report_violation("copies-differ", detail)

    def _replica_differences(self) -> list[str]:
        """Return texts of batches that differ between replicas (not compacted, not internal), or metadata logs."""
        out = []
        names = {number: name for name, number in self.numbers.items()}
        image = self.image()
        for topic, number, row in iterate_partitions(image):
            if topic == COMPACTED_TOPIC or topic.startswith("__"):
                continue
            copies = {names[x]: read_replica(self.simulation.host(names[x]).disk, topic, number) for x in row.replicas}
            begin = self._log_start(topic, number, row.leader)
            out += [f"{topic}-{number} {x}" for x in find_replica_differences(copies, start=begin)]
        logs = {name: read_replica(self.simulation.host(name).disk, METADATA_TOPIC, 0) for name in self.numbers}
        out += [f"{METADATA_TOPIC} {x}" for x in find_replica_differences(logs, image.offset)]
        return out

    def _log_start(self, topic: str, number: int, leader: int) -> int:
        """Return the leader's log start: earlier records may remain on some disks.

        As in Kafka, a replica keeps an uncommitted record where the leader's was deleted meanwhile: a leader does not
        know epochs without records above the log start.
        """
        parts = self.live_nodes().get(leader)
        replica = None if parts is None else parts.replica_manager.get(topic, number)
        return 0 if replica is None else replica.log.log_start_offset


def simulate_cluster(
    seed: int,
    nodes: int = 3,
    run_s: float = RUN_S,
    listen: Callable[[str], None] | None = None,
    transactions: int = 0,
    *,
    only_late: bool = False,
    moves: bool = False,
    apart: int = 0,
    groups: bool = False,
) -> SimulationResult:
    """Simulate a cluster and return the result; ``listen`` gets each event of the trace, others: `ClusterScenario`."""
    cluster = ClusterScenario(
        seed, nodes, run_s, transactions, only_late=only_late, moves=moves, apart=apart, groups=groups
    )
    cluster.simulation.trace.listen = listen
    cluster.simulation.run(cluster.run)
    return cluster.result()
