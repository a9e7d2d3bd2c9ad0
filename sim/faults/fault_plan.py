"""Fault plan of a simulated run, generated from its seed, and the injector of its faults of networks and machines.

`sim.faults.node_lifecycle` stops the nodes, and makes their disks fail with `break_disk`.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from sim.workload.clients import DELAYED_CLIENT_PREFIXES, PARTITIONS

if TYPE_CHECKING:
    from sim.engine.hosts import SimHost
    from sim.engine.network import Link
    from sim.engine.processes import SimProcess
    from sim.engine.simulation import Simulation

STOP_KINDS = ("kill", "power", "clean", "eio", "enospc", "emfile")
"""Kinds of ends of a node's process, and of faults of its disk."""
FAULT_KINDS = ("cut", "oneway", "reset", "halfopen", "lossy", "pause", "clock", "slow", "orphan")
"""Faults of network, clocks and processes."""
DELAYED_CLIENTS = "late"
"""Fault that delays requests of some clients."""
CLUSTER_FAULT_KINDS = ("split", "isolate", "bridge", DELAYED_CLIENTS)
"""Faults of the network between several nodes."""
BROKEN_DISK = {
    "eio": (errno.EIO, ("pwrite", "fsync", "open", "pread")),
    "enospc": (errno.ENOSPC, ("pwrite", "open")),
    "emfile": (errno.EMFILE, ("open", "listdir")),
}
SHARE = 0.6
RARE_SHARE = 0.35
SYNCED_SHARE = 0.2
"""Share of runs in which every acknowledgement waits for an fsync."""
CALLS_BEFORE_A_FAULT = 800
CALLS_BEFORE_A_DEATH = 600
MAX_UPTIME_S = 8.0
MAX_CUT_S = 3.0
MAX_PAUSE_S = 10.0
MAX_DELAY_S = 8.0
MAX_SYNC_S = 1.0
MAX_CLUSTER_UPTIME_S = 40.0
MAX_CLUSTER_DOWNTIME_S = 12.0
MAX_CLUSTER_CUT_S = 15.0
MAX_LOSS = 0.3
MAX_LINK_DELAY_S = 0.5
MAX_CLOCK_JUMP_MS = 600_000
MAX_CLOCK_JUMP_IN_TRANSACTIONS_MS = 4_000
MAX_CLOCK_DRIFT = 0.02
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "num.partitions": str(PARTITIONS),
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "400",
    "log.segment.delete.delay.ms": "1000",
}
QUICK_SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "700"}
SNAPSHOT_EVERY = "metadata.log.max.record.bytes.between.snapshots"
METADATA_RETENTION = "metadata.max.retention.bytes"
MAX_SNAPSHOT_BYTES = 4000
DIRECTORIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/data", {}),
    ("/data,/more", {}),
    ("/data,/more", {"metadata.log.dir": "/meta"}),
)


@dataclass
class FaultPlan:
    """Faults of a run by kind, their limits, and settings and log directories of its nodes, generated from its seed."""

    stop_kinds: list[str]
    fault_kinds: list[str]
    dirs: str
    settings: dict[str, str]
    holes: bool
    max_initial_sync_s: float
    """Maximum duration of an fsync in seconds at the start of the run."""
    max_uptime_s: float = MAX_UPTIME_S
    """Maximum uptime of a node in seconds."""
    max_downtime_s: float = 0.5
    """Maximum time between two runs of a node in seconds."""
    max_cut_s: float = MAX_CUT_S
    max_clock_jump_ms: int = MAX_CLOCK_JUMP_MS
    """Maximum change of a clock in ms. Small with transactions: a clock set back delays transaction timeouts."""
    min_interval_s: float = 1.0
    """Minimum time between two faults in seconds; the maximum is seven times that."""
    transactions: int = 0
    """Version of the transaction protocol of the clients; 0: no transactions."""
    disk_call_factor: float = 1.0
    """Factor for the number of disk calls before a disk fault or a kill."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of injected faults by kind."""

    @classmethod
    def generate(cls, rng: random.Random, *, synced: bool = False) -> FaultPlan:
        """Return a random plan for a single node.

        ``synced``: every acknowledgement waits for an fsync, the only faults are power cuts, and they must lose no
        record. Otherwise some plans are synced as well.
        """
        dirs, more = DIRECTORIES[int(rng.random() * rng.random() * len(DIRECTORIES))]
        settings = {**SETTINGS, **more}
        if rng.random() < SHARE:
            settings["log.roll.ms"] = str(300 + int(rng.random() * 4000))
        holes = rng.random() < 0.5
        slow_s = rng.random() * MAX_SYNC_S / 4 if rng.random() < 0.5 else 0.0
        fates = [f for f in STOP_KINDS if rng.random() < SHARE] or ["kill"]
        disturbances = [d for d in FAULT_KINDS if rng.random() < RARE_SHARE]
        if synced or rng.random() < SYNCED_SHARE:
            settings["log.flush.interval.messages"] = "1"
        if synced:  # frequent segment rolls concurrent with syncs
            settings["log.roll.ms"] = str(50 + int(rng.random() * 500))
            slow_s = rng.random() * MAX_SYNC_S / 10
            fates, disturbances = ["power"], []
        return cls(fates, disturbances, dirs, settings, holes, slow_s)

    @classmethod
    def generate_for_cluster(cls, rng: random.Random) -> FaultPlan:
        """Return a random plan for several nodes, with longer uptimes and downtimes, and cuts between the nodes."""
        drawn = cls.generate(rng)
        drawn.fault_kinds += [d for d in CLUSTER_FAULT_KINDS if rng.random() < RARE_SHARE]
        drawn.max_uptime_s = 4 + rng.random() * MAX_CLUSTER_UPTIME_S
        drawn.max_downtime_s = 0.5 + rng.random() * rng.random() * MAX_CLUSTER_DOWNTIME_S
        drawn.max_cut_s = 1 + rng.random() * MAX_CLUSTER_CUT_S
        drawn.disk_call_factor = 1 + rng.random() * 9
        if rng.random() < 0.7:  # otherwise only fenced brokers leave an ISR in a short run
            drawn.settings["replica.lag.time.max.ms"] = str(int(1500 + rng.random() * 6000))
        if rng.random() < 0.5:
            drawn.settings |= QUICK_SESSIONS
        if rng.random() < 0.5:  # a restarted node must fetch a snapshot
            drawn.settings[SNAPSHOT_EVERY] = str(200 + int(rng.random() * MAX_SNAPSHOT_BYTES))
            drawn.settings[METADATA_RETENTION] = str(int(rng.random() * MAX_SNAPSHOT_BYTES))
        return drawn

    def use_only_delays(self) -> None:
        """Restrict the plan to frequent delays of client requests: no stops of nodes, no other faults."""
        self.stop_kinds, self.fault_kinds, self.min_interval_s, self.max_initial_sync_s = (
            [],
            [DELAYED_CLIENTS],
            0.2,
            0.0,
        )

    @property
    def synced(self) -> bool:
        """True if every acknowledgement waits for an fsync (``log.flush.interval.messages`` 1)."""
        return self.settings.get("log.flush.interval.messages") == "1"


def break_disk(process: SimProcess, kind: str, hit: Callable[[], None], times: float = 1.0) -> None:
    """Make a random later disk call of a process fail once; ``hit`` is called then.

    Args:
        process: Process with the disk calls.
        kind: Key of `BROKEN_DISK`, which selects the error number and the calls that may fail.
        hit: Called just before the error is raised.
        times: Factor for the number of disk calls before the fault.
    """
    session = process.session
    at = session.disk.calls + int(process.simulation.rng.random() * CALLS_BEFORE_A_FAULT * times)
    number, calls = BROKEN_DISK[kind]
    if process.simulation.rng.random() < 0.5:  # else the most frequent calls receive all faults
        calls = (process.simulation.rng.choice(calls),)

    def fault(call: str, path: str) -> OSError | None:
        if session.disk.calls >= at and call in calls:
            session.fault = None
            hit()
            return OSError(number, "injected", path)
        return None

    session.fault = fault


class FaultInjector:
    """Injector of network and clock faults, slow disks, and pauses of processes of a plan at random times."""

    def __init__(self, simulation: Simulation, fault_plan: FaultPlan, victims: list[str]) -> None:
        self._simulation = simulation
        self._rng = simulation.rng
        self._fault_plan = fault_plan
        self._victims = victims
        """Hosts with nodes."""

    async def run(self) -> None:
        """Inject faults at random times until cancelled."""
        while True:
            await trio.sleep(self._fault_plan.min_interval_s * (1 + self._rng.random() * 6))
            if self._fault_plan.fault_kinds:
                kind = self._rng.choice(self._fault_plan.fault_kinds)
                self._fault_plan.counts[kind] += 1
                self._simulation.trace_event(kind)
                getattr(self, f"_{kind}")()

    def stop_faults(self) -> None:
        """Restore links and fast disks, and resume paused processes.

        Clocks keep their offset and rate, half-open connections and the faults of `break_disk` stay.
        """
        self._simulation.network.restore_links()
        for host in self._simulation.hosts.values():
            host.slow_s = 0.0
            for process in list(host.processes):
                process.threads.slow_s = 0.0
                process.resume()

    def _host(self) -> SimHost:
        return self._simulation.host(self._rng.choice(self._victims))

    def _links(self) -> list[Link]:
        name = self._host().name
        return [x for x in self._simulation.network.links.values() if name in (x.source.name, x.target.name)]

    def _cut(self) -> None:
        """Cut a random node off from all hosts for at most ``max_cut_s``; data in flight arrives later."""
        host = self._host()
        host.inbound_cut_until = host.outbound_cut_until = (
            self._simulation.now_s() + self._rng.random() * self._fault_plan.max_cut_s
        )

    def _oneway(self) -> None:
        """Cut one random link of a random node, that is one direction, for at most twice ``max_cut_s``."""
        links = self._links()
        if links:
            self._rng.choice(links).cut_until = self._until(2)

    def _until(self, times: float = 1) -> float:
        """Return the random end time in simulated seconds of a cut of at most ``times`` ``max_cut_s``."""
        return self._simulation.now_s() + self._rng.random() * self._fault_plan.max_cut_s * times

    def _part(self, some: list[str], others: list[str]) -> None:
        """Cut the links between two sets of nodes for at most ``max_cut_s``; clients can reach both."""
        over = self._until()
        for one in some:
            for other in others:
                for source, target in ((one, other), (other, one)):
                    self._simulation.network.link(source, target).cut_until = over

    def _shuffled(self) -> list[str]:
        return self._rng.sample(self._victims, len(self._victims))

    def _split(self) -> None:
        """Cut the nodes into two random groups that cannot reach each other, for at most ``max_cut_s``."""
        nodes = self._shuffled()
        at = 1 + int(self._rng.random() * (len(nodes) - 1))
        self._part(nodes[:at], nodes[at:])

    def _isolate(self) -> None:
        """Cut a random node off from the other nodes, but not from clients, for at most ``max_cut_s``."""
        first, *rest = self._shuffled()
        self._part([first], rest)

    def _bridge(self) -> None:
        """Cut the links between two random nodes for at most ``max_cut_s``; both reach the rest."""
        first, second, *_ = self._shuffled()
        self._part([first], [second])

    def _reset(self) -> None:
        """Reset a random half of the connections."""
        for stream in self._simulation.network.random_half():
            stream.reset()

    def _halfopen(self) -> None:
        """Drop a random connection in a middlebox: both sides keep it without receiving from each other."""
        streams = list(self._simulation.network.streams)
        if streams:
            self._rng.choice(streams).half_open()

    def _late(self) -> None:
        """Delay what clients send on their present connections, each with probability 0.5, for at most `MAX_DELAY_S`.

        Clients are those with `DELAYED_CLIENT_PREFIXES`. All data of a connection wait until one time (`hold`).
        """
        for stream, owner in list(self._simulation.network.streams.items()):
            if owner.host.name.startswith(DELAYED_CLIENT_PREFIXES) and self._rng.random() < 0.5:
                stream.hold(self._simulation.now_s() + self._rng.random() * MAX_DELAY_S)

    def _lossy(self) -> None:
        """Give a random half of the links of a random node losses and long delays, until the faults stop."""
        for link in self._links():
            if self._rng.random() < 0.5:
                link.loss = self._rng.random() * MAX_LOSS
                link.delay_s = self._rng.random() * MAX_LINK_DELAY_S

    def _pause(self) -> None:
        """Pause the processes of a random node, each for at most `MAX_PAUSE_S`."""
        for process in list(self._host().processes):
            process.pause()

            async def go_on(process: SimProcess = process) -> None:
                await trio.sleep(self._rng.random() * MAX_PAUSE_S)
                process.resume()

            self._simulation.start_soon(go_on)

    def _clock(self) -> None:
        """Make the clock of a random node jump and change its rate, until it is changed again."""
        self._host().clock.set(
            jump_ms=int((self._rng.random() - 0.5) * 2 * self._fault_plan.max_clock_jump_ms),
            rate=1 + (self._rng.random() - 0.5) * 2 * MAX_CLOCK_DRIFT,
        )

    def _slow(self) -> None:
        """Make some fsyncs in threads of a random node last up to a random part of `MAX_SYNC_S`, until faults stop."""
        host = self._host()
        host.slow_s = self._rng.random() * MAX_SYNC_S
        for process in host.processes:
            process.threads.slow_s = host.slow_s

    def _orphan(self) -> None:
        """Kill the child processes of a random node."""
        for process in list(self._host().processes):
            if process.parent is not None:
                process.kill()
