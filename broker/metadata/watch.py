"""Looks at once after a broker whose connection to the controller was lost: is its port still open?

Every controller lets itself in at each broker once, so that it knows afterwards what a refusal means. The active one
knocks where a heartbeat's connection ends. When it takes over it goes to all brokers, and stays at the door of each
until its first heartbeat: who dies before that has no connection yet whose end would be news. What a refusal means is
the rule in `ottla.controller.fast_fencing`. A kernel closes a dead process's files in any order: it is knocked a few
times.

Kafka waits for the end of the session.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Protocol

import trio

from ottla.broker.server.peer import Peer
from ottla.controller.delta import MetadataDelta
from ottla.controller.fast_fencing import BrokerConnectionRefused, BrokerProbes, is_connection_refused
from ottla.controller.image import MetadataImage
from ottla.wire.errors import ProtocolError
from ottla.world.env import FOREVER_S, Env, Stream

logger = logging.getLogger("ottla.controller")

LOOK_S = 0.1
"""So often a controller looks whether it has become the active one, where there are other brokers."""
REACH_S = 1.0
"""Between two attempts to be let in."""
PATIENCE_S = 1.0
KNOCKS_S = (0.0, 0.1, 0.4)
"""How long before each of the knocks at the door of a broker whose connection was lost."""
STAY_S = 10.0
"""At the door of a broker that has sent no heartbeat to a new controller: longer than it may be silent."""


class Rules(Protocol):
    """What is asked of the controller's machine."""

    @property
    def probes(self) -> BrokerProbes:
        """Which processes of brokers a probe has reached."""


class Fences(Protocol):
    """The controller in this process: `ottla.controller.driver.Controller`."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""

    @property
    def is_active(self) -> bool:
        """Whether it is the active one."""

    @property
    def epoch(self) -> int:
        """The quorum's epoch."""

    @property
    def machine(self) -> Rules:
        """Its rules."""

    async def submit(self, request: BrokerConnectionRefused, version: int = 0) -> bool:
        """Tell it of a refusal; whether the broker was fenced for it. Raises ProtocolError, OSError."""


class BrokerWatch:
    """Who was heard over which connection, and the task that looks after those that went."""

    def __init__(self, env: Env, node_id: int, controller: Fences) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._heard: dict[Peer, tuple[int, int]] = {}
        self._lost: set[tuple[int, int]] = set()
        self._silent: dict[tuple[int, int], trio.CancelScope] = {}
        self._bell = trio.Event()

    def heard(self, peer: Peer, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat came over a connection: its end is news of that broker."""
        is_new = peer not in self._heard
        self._heard[peer] = broker_id, broker_epoch
        if is_new:
            peer.on_close(lambda: self._left(peer))
        if (waiting := self._silent.pop((broker_id, broker_epoch), None)) is not None:
            waiting.cancel()

    def _left(self, peer: Peer) -> None:
        broker = self._heard.pop(peer, None)
        if broker is not None and self._controller.is_active:
            self._lost.add(broker)
            self._ring()

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Metadata was committed: there may be another broker now."""
        if delta.brokers:
            self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._bell = trio.Event()

    async def run(self) -> None:
        """Look after brokers, until cancelled. A node alone has none to look after."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._let_in)
            led = -1
            while True:
                controller = self._controller
                if controller.is_active and controller.epoch != led:
                    led = controller.epoch
                    for broker in self._others():
                        if broker not in self._silent:
                            nursery.start_soon(self._stay_at, *broker)
                while self._lost:
                    nursery.start_soon(self._look_after, *self._lost.pop())
                with self._env.timeout(LOOK_S if self._others() else FOREVER_S):
                    await self._bell.wait()

    def _others(self) -> list[tuple[int, int]]:
        """Brokers elsewhere that serve, each with its epoch."""
        brokers = self._controller.image.brokers
        return [(i, b.broker_epoch) for i, b in brokers.items() if i != self._node_id and not b.fenced]

    async def _let_in(self) -> None:
        """Be let in at each broker once; try those again that have not let us in."""
        while True:
            probes = self._controller.machine.probes
            while not self._others():
                await self._bell.wait()
            bell = self._bell  # this one: it may ring while somebody is knocked at
            for broker_id, epoch in self._others():
                if not probes.has_reached(broker_id, epoch) and await self._knock(broker_id) is None:
                    probes.record_reached(broker_id, epoch)
            with self._env.timeout(REACH_S):
                await bell.wait()  # there may be another

    async def _stay_at(self, broker_id: int, broker_epoch: int) -> None:
        """Look after a broker as soon as a connection to it ends, unless a heartbeat comes first."""
        with trio.CancelScope() as until_heard:
            self._silent[broker_id, broker_epoch] = until_heard
            door = await self._reach(broker_id)
            if not isinstance(door, OSError):
                with contextlib.closing(door), contextlib.suppress(OSError):
                    await door.receive_into(memoryview(bytearray(1)), STAY_S)
        if not until_heard.cancelled_caught:
            self._silent.pop((broker_id, broker_epoch), None)
            await self._look_after(broker_id, broker_epoch)

    async def _look_after(self, broker_id: int, broker_epoch: int) -> None:
        for pause_s in KNOCKS_S:
            await self._env.sleep(pause_s)
            began_ms = self._env.monotonic_ms()
            error = await self._knock(broker_id)
            if error is None or not is_connection_refused(error):
                continue
            try:
                if await self._controller.submit(BrokerConnectionRefused(broker_id, broker_epoch, began_ms)):
                    logger.warning("broker %d is gone: its port refuses; it is fenced", broker_id)
            except (ProtocolError, OSError):
                pass  # another controller looks after it, or this node ends
            return

    async def _knock(self, broker_id: int) -> OSError | None:
        """Connect to a broker's first listener; what went wrong, None where we were let in."""
        door = await self._reach(broker_id)
        if isinstance(door, OSError):
            return door
        door.close()
        return None

    async def _reach(self, broker_id: int) -> Stream | OSError:
        """A connection to a broker's first listener, or what went wrong."""
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None or not broker.end_points:
            return OSError("it has no address")
        end = broker.end_points[0]
        try:
            with self._env.timeout(PATIENCE_S):
                return await self._env.net.connect(end.host, end.port)
        except OSError as error:
            return error
        return TimeoutError("no answer")
