"""What goes wrong in a run: each seed draws which kinds there are (a swarm) and when each strikes."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from sim.clients import LATE, PARTITIONS

if TYPE_CHECKING:
    from sim.hosts import Host
    from sim.network import Link
    from sim.processes import Process
    from sim.world import World

FATES = ("kill", "power", "clean", "eio", "enospc", "emfile")
"""How a life of a node ends, or what its disk does in it."""
DISTURBANCES = ("cut", "oneway", "reset", "halfopen", "lossy", "pause", "clock", "slow", "orphan")
"""What happens beside: to the network, to clocks, to whoever runs."""
TO_CLIENTS = "late"
"""And to what some clients say."""
AMONG_NODES = ("split", "isolate", "bridge", TO_CLIENTS)
"""And to the network between several nodes."""
BROKEN_DISK = {
    "eio": (errno.EIO, ("pwrite", "fsync", "open", "pread")),
    "enospc": (errno.ENOSPC, ("pwrite", "open")),
    "emfile": (errno.EMFILE, ("open", "listdir")),
}
SHARE = 0.6
RARE_SHARE = 0.35
SYNCED_SHARE = 0.2
"""Of the runs in which every acknowledgement waits for the disk."""
CALLS_BEFORE_A_FAULT = 800
CALLS_BEFORE_A_DEATH = 600
LONGEST_LIFE_S = 8.0
LONGEST_CUT_S = 3.0
LONGEST_PAUSE_S = 10.0
LONGEST_HELD_S = 8.0
LONGEST_SYNC_S = 1.0
LONGEST_LIFE_IN_A_CLUSTER_S = 40.0
LONGEST_GONE_IN_A_CLUSTER_S = 12.0
LONGEST_CUT_IN_A_CLUSTER_S = 15.0
WORST_LOSS = 0.3
WORST_DELAY_S = 0.5
WORST_JUMP_MS = 600_000
WORST_JUMP_IN_TRANSACTIONS_MS = 4_000
WORST_DRIFT = 0.02
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "num.partitions": str(PARTITIONS),
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "400",
    "log.segment.delete.delay.ms": "1000",
}
QUICK_SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "700"}
SNAPSHOT_EVERY = "metadata.log.max.record.bytes.between.snapshots"
METADATA_KEPT = "metadata.max.retention.bytes"
MOST_SNAPSHOT_BYTES = 4000
DIRECTORIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/data", {}),
    ("/data,/more", {}),
    ("/data,/more", {"metadata.log.dir": "/meta"}),
)


@dataclass
class Swarm:
    """What one seed has in store."""

    fates: list[str]
    disturbances: list[str]
    dirs: str
    settings: dict[str, str]
    holes: bool
    slow_s: float
    """Longest time a sync takes from the start."""
    longest_life_s: float = LONGEST_LIFE_S
    """Of a node."""
    longest_gone_s: float = 0.5
    """Between two lives of a node."""
    longest_cut_s: float = LONGEST_CUT_S
    worst_jump_ms: int = WORST_JUMP_MS
    """How far a clock is set. Where there are transactions not far: in Kafka, too, one that goes back delays the end of
    those that nobody ends.
    """
    rest_s: float = 1.0
    """Shortest time between two disturbances; the longest is seven times that."""
    transactions: int = 0
    """The version of the protocol of transactions that clients speak; 0: there are none."""
    calls_times: float = 1.0
    """How many times more calls to the disk there are before one fails, or its process dies at one."""
    counted: Counter[str] = field(default_factory=Counter)
    """How often each struck."""

    @classmethod
    def drawn(cls, rng: random.Random, *, synced: bool = False) -> Swarm:
        """From the seed; ``synced``: power cuts and nothing else, and they must cost nothing."""
        dirs, more = DIRECTORIES[int(rng.random() * rng.random() * len(DIRECTORIES))]
        settings = {**SETTINGS, **more}
        if rng.random() < SHARE:
            settings["log.roll.ms"] = str(300 + int(rng.random() * 4000))
        holes = rng.random() < 0.5
        slow_s = rng.random() * LONGEST_SYNC_S / 4 if rng.random() < 0.5 else 0.0
        fates = [f for f in FATES if rng.random() < SHARE] or ["kill"]
        disturbances = [d for d in DISTURBANCES if rng.random() < RARE_SHARE]
        if synced or rng.random() < SYNCED_SHARE:
            settings["log.flush.interval.messages"] = "1"
        if synced:  # rolls that meet syncs, often
            settings["log.roll.ms"] = str(50 + int(rng.random() * 500))
            slow_s = rng.random() * LONGEST_SYNC_S / 10
            fates, disturbances = ["power"], []
        return cls(fates, disturbances, dirs, settings, holes, slow_s)

    @classmethod
    def of_cluster(cls, rng: random.Random) -> Swarm:
        """From the seed, for several nodes: they live longer, may be gone for longer, and may lose one another."""
        drawn = cls.drawn(rng)
        drawn.disturbances += [d for d in AMONG_NODES if rng.random() < RARE_SHARE]
        drawn.longest_life_s = 4 + rng.random() * LONGEST_LIFE_IN_A_CLUSTER_S
        drawn.longest_gone_s = 0.5 + rng.random() * rng.random() * LONGEST_GONE_IN_A_CLUSTER_S
        drawn.longest_cut_s = 1 + rng.random() * LONGEST_CUT_IN_A_CLUSTER_S
        drawn.calls_times = 1 + rng.random() * 9
        if rng.random() < 0.7:  # else nobody leaves an in-sync set in a short run but those who are fenced
            drawn.settings["replica.lag.time.max.ms"] = str(int(1500 + rng.random() * 6000))
        if rng.random() < 0.5:
            drawn.settings |= QUICK_SESSIONS
        if rng.random() < 0.5:  # who was gone for a while finds only a snapshot of what it missed
            drawn.settings[SNAPSHOT_EVERY] = str(200 + int(rng.random() * MOST_SNAPSHOT_BYTES))
            drawn.settings[METADATA_KEPT] = str(int(rng.random() * MOST_SNAPSHOT_BYTES))
        return drawn

    def only_late(self) -> None:
        """Nobody dies and no link is cut: what clients say comes late, again and again (T3)."""
        self.fates, self.disturbances, self.rest_s, self.slow_s = [], [TO_CLIENTS], 0.2, 0.0

    @property
    def synced(self) -> bool:
        """Whether every acknowledgement waits for the disk."""
        return self.settings.get("log.flush.interval.messages") == "1"


def break_disk(process: Process, kind: str, hit: Callable[[], None], times: float = 1.0) -> None:
    """Some call from now on fails, once."""
    session = process.session
    at = session.disk.calls + int(process.world.rng.random() * CALLS_BEFORE_A_FAULT * times)
    number, calls = BROKEN_DISK[kind]
    if process.world.rng.random() < 0.5:  # else the commonest calls take all the faults
        calls = (process.world.rng.choice(calls),)

    def fault(what: str, path: str) -> OSError | None:
        if session.disk.calls >= at and what in calls:
            session.fault = None
            hit()
            return OSError(number, "injected", path)
        return None

    session.fault = fault


class Disturber:
    """Strikes now and then, until there is peace."""

    def __init__(self, world: World, swarm: Swarm, victims: list[str]) -> None:
        self._world = world
        self._rng = world.rng
        self._swarm = swarm
        self._victims = victims
        """Hosts with nodes."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(self._swarm.rest_s * (1 + self._rng.random() * 6))
            if self._swarm.disturbances:
                kind = self._rng.choice(self._swarm.disturbances)
                self._swarm.counted[kind] += 1
                self._world.note(kind)
                getattr(self, f"_{kind}")()

    def make_peace(self) -> None:
        """Everything works from now on; clocks stay as wrong as they are, but stand still no more."""
        self._world.network.heal()
        for host in self._world.hosts.values():
            host.slow_s = 0.0
            for process in list(host.processes):
                process.threads.slow_s = 0.0
                process.resume()

    def _host(self) -> Host:
        return self._world.host(self._rng.choice(self._victims))

    def _links(self) -> list[Link]:
        name = self._host().name
        return [x for x in self._world.network.links.values() if name in (x.source.name, x.target.name)]

    def _cut(self) -> None:
        """A node hears nobody and nobody hears it; then what was sent arrives."""
        host = self._host()
        host.deaf_until = host.mute_until = self._world.now_s() + self._rng.random() * self._swarm.longest_cut_s

    def _oneway(self) -> None:
        """One direction between two hosts is cut."""
        links = self._links()
        if links:
            self._rng.choice(links).cut_until = self._until(2)

    def _until(self, times: float = 1) -> float:
        """When a cut that begins now is over."""
        return self._world.now_s() + self._rng.random() * self._swarm.longest_cut_s * times

    def _part(self, some: list[str], others: list[str]) -> None:
        """Those hear nothing of these, and the reverse; clients hear both."""
        over = self._until()
        for one in some:
            for other in others:
                for source, target in ((one, other), (other, one)):
                    self._world.network.link(source, target).cut_until = over

    def _shuffled(self) -> list[str]:
        return self._rng.sample(self._victims, len(self._victims))

    def _split(self) -> None:
        """The nodes fall into two groups."""
        nodes = self._shuffled()
        at = 1 + int(self._rng.random() * (len(nodes) - 1))
        self._part(nodes[:at], nodes[at:])

    def _isolate(self) -> None:
        """One node hears none of the others."""
        first, *rest = self._shuffled()
        self._part([first], rest)

    def _bridge(self) -> None:
        """Two nodes do not hear one another; the rest hears both."""
        first, second, *_ = self._shuffled()
        self._part([first], [second])

    def _reset(self) -> None:
        """One connection in two breaks, and both sides hear of it."""
        for stream in self._world.network.some():
            stream.reset()

    def _halfopen(self) -> None:
        """A box between forgets a connection: both sides are there and neither hears the other."""
        streams = list(self._world.network.streams)
        if streams:
            self._rng.choice(streams).half_open()

    def _late(self) -> None:
        """A box between holds back what clients say over some of the connections they have."""
        for stream, owner in list(self._world.network.streams.items()):
            if owner.host.name.startswith(LATE) and self._rng.random() < 0.5:
                stream.hold(self._world.now_s() + self._rng.random() * LONGEST_HELD_S)

    def _lossy(self) -> None:
        """A link becomes bad, for good."""
        for link in self._links():
            if self._rng.random() < 0.5:
                link.loss = self._rng.random() * WORST_LOSS
                link.delay_s = self._rng.random() * WORST_DELAY_S

    def _pause(self) -> None:
        """A process stands still for a while."""
        for process in list(self._host().processes):
            process.pause()

            async def go_on(process: Process = process) -> None:
                await trio.sleep(self._rng.random() * LONGEST_PAUSE_S)
                process.resume()

            self._world.start_soon(go_on)

    def _clock(self) -> None:
        """A clock is set, and runs differently from now on."""
        self._host().clock.set(
            jump_ms=int((self._rng.random() - 0.5) * 2 * self._swarm.worst_jump_ms),
            rate=1 + (self._rng.random() - 0.5) * 2 * WORST_DRIFT,
        )

    def _slow(self) -> None:
        """Syncs take their time on a disk, until further notice."""
        host = self._host()
        host.slow_s = self._rng.random() * LONGEST_SYNC_S
        for process in host.processes:
            process.threads.slow_s = host.slow_s

    def _orphan(self) -> None:
        """A process that works beside a node is killed."""
        for process in list(self._host().processes):
            if process.parent is not None:
                process.kill()
