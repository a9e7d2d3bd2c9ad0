"""One simulated run: a node that is killed, cut from power and disturbed in every way, its clients, and the checker.

Everything is drawn from one seed: which faults there are, when they strike, how the scheduler orders tasks, how the
network delays, what a power cut leaves. The same seed gives the same trace, in any process.
"""

from __future__ import annotations

import errno
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import trio
import trio.testing

from ottla.broker.config import NodeConfig
from ottla.broker.node import Node, StorageFailed
from ottla.wire.records import Record
from ottla.world.memory_disk import Killed, MemoryDisk, Session
from sim.clients import PARTITIONS, PORT, TOPIC, Again, SimClient, SimConsumer, SimProducer, make_topic, read
from sim.env import EPOCH_MS, SimEnv
from sim.ledger import Ledger
from sim.network import Network
from sim.patches import make_deterministic

RUN_S = 40.0
FAULTS = ("kill", "power", "clean", "eio", "enospc", "cut", "reset")
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


@dataclass
class World:
    """A run under way."""

    seed: int
    synced: bool = False
    """Every acknowledgement waits for the disk: then power cuts are all there is, and they must cost nothing."""
    rng: random.Random = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    faults: Counter[str] = field(default_factory=Counter)
    draining: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.network = Network(self.rng)
        self.disk = MemoryDisk(self.rng, lambda: EPOCH_MS + int(trio.current_time() * 1000))
        self.enabled = [f for f in FAULTS if self.rng.random() < 0.6] or ["kill"]
        self.settings = SETTINGS
        if self.synced:
            self.enabled = ["power"]
            self.settings = {**SETTINGS, "log.flush.interval.messages": "1"}
        self._trace = hashlib.sha256()

    def note(self, text: str) -> None:
        """One line of the trace."""
        self._trace.update(f"{trio.current_time():.6f} {text}\n".encode())

    # ------------------------------------------------------------------ the node's lives

    async def _life(self, *, last: bool) -> None:
        """One life of the node, from its start to whatever ends it."""
        session = self.disk.session()
        node = Node(SimEnv(self.rng, session, self.network), NodeConfig(self.settings, "/data", 1, "node", PORT))
        fate = "clean" if last else self.rng.choice([f for f in self.enabled if f not in ("cut", "reset")] or ["kill"])
        self.note(f"start, fate {fate}, {self.disk.calls} calls")
        stop = trio.Event()
        if not last and fate in ("kill", "power") and self.rng.random() < 0.7:
            session.kill_at = self.disk.calls + int(self.rng.random() * 600)
        if fate in ("eio", "enospc"):
            self._break_disk(session, errno.EIO if fate == "eio" else errno.ENOSPC)
        ended = "?"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_later, session, stop, fate, nursery.cancel_scope, last)
                await node.run(None, stop)
                ended = "stopped"
                nursery.cancel_scope.cancel()
        except BaseException as error:  # noqa: BLE001,RUF100 - sorted out below, by what it is made of
            ended = self._sort(error)
        if not session.dead and ended == "?":
            ended = "killed"
        session.kill()
        self.network.reset_all()
        self.network.listeners.clear()
        if fate == "power" and ended == "killed":
            logs = {(x.topic, x.partition): x for x in node.storage.logs()}
            if not self.synced:
                points = {p: logs[TOPIC, p].recovery_point for p in range(PARTITIONS) if (TOPIC, p) in logs}
                self.ledger.power_cut(points)
            self.disk.lose_power()
        self.faults[fate if ended != "stopped" else "clean"] += 1
        self.note(f"ended: {ended}")

    def _sort(self, error: BaseException) -> str:
        """What ended a life; anything unexpected is a violation."""
        leaves: list[BaseException] = []
        todo = [error]
        while todo:
            one = todo.pop()
            if isinstance(one, BaseExceptionGroup):
                todo += one.exceptions
            else:
                leaves.append(one)
        if all(isinstance(x, trio.Cancelled | KeyboardInterrupt) for x in leaves):
            raise error  # the whole run is over
        if any(isinstance(x, Killed) for x in leaves):
            return "killed"
        if all(isinstance(x, StorageFailed | OSError) for x in leaves):
            return "disk failed"
        self.ledger.violation("no-start", repr(leaves))
        return "failed"

    def _break_disk(self, session: Session, number: int) -> None:
        """Some call from now on fails, once."""
        at = self.disk.calls + int(self.rng.random() * 800)
        kinds = ("pwrite", "fsync", "open", "pread") if number == errno.EIO else ("pwrite", "open")

        def fault(what: str, path: str) -> OSError | None:
            if self.disk.calls >= at and what in kinds:
                session.fault = None
                return OSError(number, "injected", path)
            return None

        session.fault = fault

    async def _end_later(
        self,
        session: Session,
        stop: trio.Event,
        fate: str,
        scope: trio.CancelScope,
        last: bool,  # noqa: FBT001
    ) -> None:
        if last:
            await trio.sleep_forever()
        await trio.sleep(self.rng.random() * 8)
        if fate == "clean":
            stop.set()
            return
        session.kill()
        self.network.reset_all()
        scope.cancel()

    async def _disturb(self) -> None:
        """Cuts and resets of the network."""
        while True:
            await trio.sleep(1 + self.rng.random() * 6)
            kinds = [f for f in self.enabled if f in ("cut", "reset")]
            if kinds and not self.draining:
                kind = self.rng.choice(kinds)
                self.faults[kind] += 1
                if kind == "cut":
                    self.network.cut(self.rng.random() * 3)
                else:
                    self.network.reset_some()

    # ------------------------------------------------------------------ the run

    async def run(self) -> None:
        """Faults for a while, then peace, then the reckoning."""
        async with trio.open_nursery() as everything:
            everything.start_soon(self._disturb)
            done = trio.Event()
            everything.start_soon(self._work, done)
            while trio.current_time() < RUN_S:
                await self._life(last=False)
                await trio.sleep(self.rng.random() * 0.5)
            self.draining = True
            everything.start_soon(self._finish, done, everything.cancel_scope)
            await self._life(last=True)
            self.ledger.violation("no-start", "the last life ended by itself")
            everything.cancel_scope.cancel()

    async def _work(self, done: trio.Event) -> None:
        await make_topic(self)
        async with trio.open_nursery() as consumers:
            for number in range(2):
                consumers.start_soon(SimConsumer(self, f"consumer-{number}").run)
            async with trio.open_nursery() as producers:
                for number in range(2):
                    producers.start_soon(SimProducer(self, f"producer-{number}", number * 1_000_000).run)
            done.set()
            consumers.cancel_scope.cancel()

    async def _finish(self, done: trio.Event, scope: trio.CancelScope) -> None:
        """When the producers have been acknowledged everything: read it all and compare."""
        with trio.move_on_after(60):
            await done.wait()
            client = SimClient(self, "reader")
            for partition in range(PARTITIONS):
                records = await self._read_all(client, partition)
                self.note(f"partition {partition}: {[(x.offset, x.value) for x in records]}")
                self.ledger.check_partition(partition, records)
            scope.cancel()
            return
        self.ledger.violation("stuck", "clients were not served within 60 s after the faults had stopped")
        scope.cancel()

    async def _read_all(self, client: SimClient, partition: int) -> list[Record]:
        out: list[Record] = []
        while True:
            at = out[-1].offset + 1 if out else 0
            try:
                more = await read(client, partition, at, 50)
            except Again:
                await trio.sleep(0.1)
                continue
            if not more:
                return out
            out += more

    def result(self, virtual_s: float) -> Result:
        """The run in one line's worth of facts."""
        self._trace.update(repr((sorted(self.faults.items()), self.ledger.violations, self.disk.calls)).encode())
        return Result(
            self.seed,
            self._trace.hexdigest()[:16],
            dict(self.faults),
            virtual_s,
            self.ledger.violations,
            self.ledger.acknowledged_count,
            self.ledger.commits,
        )


def simulate(seed: int, *, synced: bool = False) -> Result:
    """Run one seed. The process must run under ``PYTHONHASHSEED=0`` for digests to be comparable."""
    make_deterministic(seed)
    world = World(seed, synced)
    ended = 0.0

    async def main() -> None:
        nonlocal ended
        await world.run()
        ended = trio.current_time()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return world.result(ended)
