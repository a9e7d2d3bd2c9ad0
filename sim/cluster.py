"""A run of several nodes: each meets its own fate, all meet the network's; then peace, progress, and the reckoning.

Violations of its own, beside the ledger's, the history's and the invariants': ``stuck`` (a partition that cannot be
written to within 15 s of peace), ``isr-not-full`` (within 30 s), ``copies-differ`` (replicas, or metadata logs),
``no-failover`` (a partition that cannot be written to though only one node is out of reach).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from ottla.broker.metadata.admin import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.node import Node
from ottla.controller.format import FormatPlan, format_directories
from ottla.controller.image import MetadataImage
from ottla.controller.levels import bootstrap_feature_levels
from ottla.log.directory import METADATA_TOPIC, LogDirectory
from sim.anomalies import check
from sim.clients import PORT, TOPIC, Service, SimClient, SimProducer
from sim.copies import copy_on, differences
from sim.exactly_once import ExactlyOnce
from sim.faults import TO_CLIENTS, WORST_JUMP_IN_TRANSACTIONS_MS, Disturber, Swarm
from sim.hosts import Host
from sim.invariants import Invariants, Living, newest, partitions
from sim.lives import Guard, Lives, until_peace
from sim.moves import SimMover
from sim.scenario import COMPACTED, KEYS, Result, Scenario
from sim.world import World

CONTROLLER_PORT = 9093
CLUSTER_ID = "simulatedclusterAAAAAA"
RUN_S = 40.0
WRITABLE_WITHIN_S = 15.0
FULL_WITHIN_S = 30.0
EQUAL_WITHIN_S = 10.0
FAILOVER_S = 14.0
"""After a session: elections of the quorum, whose winner begins every session anew, and what clients take."""
OUTLIVED_SHARE = 0.5
"""Of the runs in which a node is out of reach once more."""
LOOK_S = 0.2
ANSWER_S = 3.0
REPLACED_SHARE = 0.5
"""Of the directories of a node that lost power."""
MOVED = (TOPIC, COMPACTED, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
PROBES_FROM = 50_000_000
SHARED = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}


def settings_of(number: int, names: list[str], apart: int = 0) -> dict[str, str]:
    """What one node of the cluster is started with; one alone needs nothing. The first ``apart`` are no brokers."""
    if len(names) == 1:
        return {}
    replicas = str(min(3, len(names) - apart))
    voters = names[:apart] or names
    listens = {"broker": f"PLAINTEXT://n{number}:{PORT}", "controller": f"CONTROLLER://n{number}:{CONTROLLER_PORT}"}
    roles = list(listens)
    if apart:
        roles = ["controller"] if number <= apart else ["broker"]
    return {
        **SHARED,
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


def format_host(host: Host, number: int, swarm: Swarm) -> None:
    """What ``ottla format`` does on each machine before the first start; the voters are in the settings."""
    session = host.disk.session()
    paths = dict.fromkeys([*swarm.dirs.split(","), swarm.settings.get("metadata.log.dir", "")])
    directories = [LogDirectory(session, path) for path in paths if path]
    named = swarm.settings.get("metadata.log.dir")
    metadata = next(x for x in directories if x.path == (named or directories[0].path))
    levels = {"transaction.version": swarm.transactions} if swarm.transactions else {}
    plan = FormatPlan(number, CLUSTER_ID, bootstrap_feature_levels(None, levels, dynamic_quorum=False))
    ids = (bytes([2, number, *index.to_bytes(14, "big")]) for index in range(1, 100))
    for _ in format_directories(directories, metadata, plan, host.clock.wall_ms(), lambda: next(ids)):
        pass
    session.kill()


class ClusterGuard(Guard):
    """One disk at a time may lose what is not synced: nobody else dies until every ISR has that node back."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.world, cluster.swarm)
        self._cluster = cluster
        self._weak: str | None = None
        self._epoch_then = -1
        self._chance = random.Random(f"disks {cluster.world.seed}")

    def may_die(self, host: str) -> bool:
        """Not while another's disk is to be filled again. What a controller has is synced."""
        return self._weak in (None, host) or host not in self._cluster.brokers or self._is_back()

    def power_cut(self, host: str, node: Node) -> bool:
        """Only where all others live and every ISR is full."""
        cluster = self._cluster
        if host not in cluster.brokers:
            return True
        if not self.may_die(host) or not cluster.all_live_but(host) or not cluster.is_full():
            return False
        number = cluster.numbers[host]
        self._weak = host
        self._epoch_then = cluster.image().brokers[number].broker_epoch
        for lives in cluster.lives.values():
            if lives.process is not None:
                lives.process.session.kill_at = lives.process.session.fault = None
        return True

    def replaced(self, host: str) -> list[str]:
        """Any but the one with the metadata log: a voter whose settings name it does not come back without."""
        swarm = self._cluster.swarm
        if host not in self._cluster.brokers:
            return []
        paths = swarm.dirs.split(",")
        if "metadata.log.dir" not in swarm.settings:
            del paths[0]
        return [path for path in paths if self._chance.random() < REPLACED_SHARE]

    def _is_back(self) -> bool:
        assert self._weak is not None
        image, number = self._cluster.image(), self._cluster.numbers[self._weak]
        broker = image.brokers.get(number)
        back = broker is not None and broker.broker_epoch > self._epoch_then and not broker.fenced
        if back and all(number in x.isr for _, _, x in partitions(image) if number in x.replicas):
            self._weak = None
        return self._weak is None


class Cluster(Scenario):
    """A run under way."""

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
        """``transactions``: the version of the protocol that some clients make them with; 0: nobody does.

        ``only_late``: nothing goes wrong but that what clients say comes late. ``moves``: replicas are moved about.
        ``apart``: so many controllers that are no brokers, before the ``nodes``, who then are brokers only. ``groups``:
        with members of the groups of Kafka 4.
        """
        world = World(seed)
        self.numbers = {f"n{number}": number for number in range(1, apart + nodes + 1)}
        self.brokers = {name: number for name, number in self.numbers.items() if number > apart}
        names = list(self.numbers)
        service = Service(
            tuple((x, PORT) for x in self.brokers), replicas=min(3, nodes), timeout_s=ANSWER_S, checked=True
        )
        swarm = Swarm.of_cluster(world.rng)
        swarm.transactions = transactions
        super().__init__(world, swarm, names, service)
        if transactions:
            self.transactions = ExactlyOnce(world, service, transactions)
            swarm.disturbances = list(dict.fromkeys([*swarm.disturbances, TO_CLIENTS]))
            swarm.worst_jump_ms = WORST_JUMP_IN_TRANSACTIONS_MS
        if groups:
            self.with_groups()
        if only_late:
            swarm.only_late()
        self._run_s = run_s
        self._mover = SimMover(world, self.image, list(self.brokers.values()), MOVED, service) if moves else None
        guard = ClusterGuard(self)
        self.lives = {
            name: Lives(world, self.swarm, number, name, settings_of(number, names, apart), guard)
            for name, number in self.numbers.items()
        }
        for name, number in self.numbers.items() if nodes > 1 else ():
            format_host(world.host(name), number, self.swarm)
            world.host(name).journaled = True  # else the oldest segment may go alone: nobody can know that it was

    # ------------------------------------------------------------------ what is known of the nodes

    def living(self) -> Living:
        """The parts of the nodes that are up."""
        return {self.numbers[name]: parts for name, parts in self.parts_by_host().items()}

    def image(self) -> MetadataImage:
        """The newest that anybody alive has."""
        return newest(self.living())

    def all_live_but(self, host: str) -> bool:
        """Whether every other node is up, and the process that the image knows: it has been heard of since it began."""
        image, here = self.image(), self.numbers[host]
        known = [
            number
            for number, parts in self.living().items()
            if number != here and number in image.brokers
            and image.brokers[number].broker_epoch == parts.lifecycle.broker_epoch
        ]  # fmt: skip
        return len(known) == len(self.brokers) - 1

    def is_full(self) -> bool:
        """Whether every broker is there, and every ISR is full and led."""
        image = self.image()
        there = len([x for x in image.brokers.values() if not x.fenced]) == len(self.brokers)
        return there and all(
            x.leader >= 0 and sorted(x.isr) == sorted(x.replicas) for _, _, x in partitions(image)
        )  # fmt: skip

    async def full(self) -> None:
        """Wait until `is_full`: who leads a topic that is made now is who was asked for."""
        while True:
            if self.is_full():
                return
            await trio.sleep(LOOK_S)

    # ------------------------------------------------------------------ the run

    async def run(self) -> None:
        """Faults for a while, then peace, progress, and the reckoning."""
        world = self.world
        disturber = Disturber(world, self.swarm, list(self.numbers))
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            everything.start_soon(Invariants(world, self.living).run)
            several, die = len(self.numbers) > 1, bool(self.swarm.fates)
            async with trio.open_nursery() as moving:
                if self._mover is not None:
                    moving.start_soon(self._mover.run)
                await until_peace(disturber, self.lives.values(), self._run_s, everything, disturbs=several, die=die)
                moving.cancel_scope.cancel()
            if self._mover is not None:
                self.swarm.counted["moves"] = self._mover.moves
                self._mover.drop()
            world.network.mend()
            world.note("peace")
            await self._progress()
            if several and not world.ledger.violations and world.rng.random() < OUTLIVED_SHARE:
                await self._outlive()
            world.draining = True
            await self._finish()
            everything.cancel_scope.cancel()

    async def _progress(self) -> None:
        """Every partition is written to, and every ISR fills up."""
        world, began = self.world, self.world.now_s()
        written = await self._written(PROBES_FROM, WRITABLE_WITHIN_S)
        if len(written) < self.probed:
            world.ledger.violation("stuck", f"15 s after the faults had stopped only {written} took a record")
        while not self.is_full():
            if world.now_s() > began + FULL_WITHIN_S:
                world.ledger.violation("isr-not-full", f"30 s after the faults had stopped: {self._short()}")
                return
            await trio.sleep(LOOK_S)
        world.note("every isr is full")

    async def _outlive(self) -> None:
        """One node is out of reach, and nobody is told: the others go on in time, and take it in again afterwards."""
        world, began = self.world, self.world.now_s()
        host = world.host(world.rng.choice(list(self.numbers)))
        session_s = int(self.swarm.settings.get("broker.session.timeout.ms", "9000")) / 1000
        within_s = session_s + FAILOVER_S
        host.deaf_until = host.mute_until = began + within_s
        world.note(f"{host.name} is out of reach for {within_s} s")
        written = await self._written(PROBES_FROM + 500, within_s)
        if len(written) < self.probed:
            told = f"{within_s} s after {host.name} was out of reach only {written} took a record"
            world.ledger.violation("no-failover", told)
        await trio.sleep(max(began + within_s - world.now_s(), 0))
        world.network.heal()
        while not self.is_full():
            if world.now_s() > began + within_s + FULL_WITHIN_S:
                world.ledger.violation("isr-not-full", f"30 s after {host.name} was back: {self._short()}")
                return
            await trio.sleep(LOOK_S)

    @property
    def probed(self) -> int:
        """How many partitions `_written` writes to."""
        return 2 * self.service.partitions

    async def _written(self, first: int, within_s: float) -> list[str]:
        """Write a record to every partition; those that took it in time."""
        written: list[str] = []

        async def probe(topic: str, partition: int) -> None:
            keys = KEYS if topic == COMPACTED else 0
            value = first + 1000 * len(topic) + partition
            prober = SimProducer(self.world, f"prober-{topic}-{partition}", value, topic, keys, self.service)
            await prober.send(partition, [value])
            prober.drop()
            written.append(f"{topic}-{partition}")

        async with trio.open_nursery() as probes:
            for topic in (TOPIC, COMPACTED):
                for number in range(self.service.partitions):
                    probes.start_soon(probe, topic, number)
            probes.cancel_scope.deadline = trio.current_time() + within_s
        return sorted(written)

    def _short(self) -> str:
        image = self.image()
        bad = [f"{n}-{i} {x.leader} of {x.isr}" for n, i, x in partitions(image) if sorted(x.isr) != sorted(x.replicas)]
        gone = [number for number in self.brokers.values() if number not in image.unfenced_brokers()]
        return f"brokers {gone} are not there; {', '.join(bad[:8])}"

    async def _reckon(self, client: SimClient) -> None:
        await super()._reckon(client)
        for found in check(self.world.history.ops(TOPIC)):
            if found.bad:
                self.world.ledger.violation(found.name, found.detail)
        for _ in range(int(EQUAL_WITHIN_S / LOOK_S)):
            if not self._different():
                return
            await trio.sleep(LOOK_S)
        for detail in self._different()[:5]:
            self.world.ledger.violation("copies-differ", detail)

    def _different(self) -> list[str]:
        """Where replicas differ on the disks; logs that are compacted are each compacted in their own time."""
        out = []
        names = {number: name for name, number in self.numbers.items()}
        image = self.image()
        for topic, number, told in partitions(image):
            if topic == COMPACTED or topic.startswith("__"):
                continue
            copies = {names[x]: copy_on(self.world.host(names[x]).disk, topic, number) for x in told.replicas}
            begin = self._log_start(topic, number, told.leader)
            out += [f"{topic}-{number} {x}" for x in differences(copies, begin=begin)]
        logs = {name: copy_on(self.world.host(name).disk, METADATA_TOPIC, 0) for name in self.numbers}
        out += [f"{METADATA_TOPIC} {x}" for x in differences(logs, image.offset)]
        return out

    def _log_start(self, topic: str, number: int, leader: int) -> int:
        """Where the leader's log begins: what was deleted stays on the disks for a while, and is nobody's to compare.

        As at Kafka, a replica whose one record was never committed keeps it where another's was deleted meanwhile: of
        epochs that have no record above the log start a leader knows nothing any more.
        """
        parts = self.living().get(leader)
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
) -> Result:
    """Run one seed; ``listen`` is told each event."""
    cluster = Cluster(seed, nodes, run_s, transactions, only_late=only_late, moves=moves, apart=apart, groups=groups)
    cluster.world.trace.listen = listen
    cluster.world.run(cluster.run)
    return cluster.result()
