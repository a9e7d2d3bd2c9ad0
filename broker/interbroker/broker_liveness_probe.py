"""Liveness probe: connects to a broker's port after its heartbeat connection to the controller was lost.

Every controller connects to each broker once, so that a later refusal is meaningful. The active controller probes a
broker when its heartbeat connection is closed. After its activation it probes all brokers until their first heartbeat:
the failure of a broker before that closes no heartbeat connection. `ottla.controller.control.fast_fencing` decides what
a refused connection means. A kernel closes the files of a dead process in any order: the probe is repeated. Kafka waits
for the end of the session.
"""

from __future__ import annotations

import contextlib
import logging

import trio

from ottla.broker.requests.peer import Peer
from ottla.client.channel import connect
from ottla.controller.control.fast_fencing import BrokerConnectionRefused, is_connection_refused
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.quorum_controller import QuorumController
from ottla.env.env import FOREVER_S, Env, Stream
from ottla.wire.errors import ProtocolError

logger = logging.getLogger("ottla.controller")

LEADERSHIP_CHECK_INTERVAL_S = 0.1
"""Interval in seconds of checks whether this node has become the active controller, if there are other brokers."""
CONNECT_RETRY_S = 1.0
"""Interval in seconds between attempts to connect to a broker that was never reached."""
CONNECT_TIMEOUT_S = 1.0
PROBE_DELAYS_S = (0.0, 0.1, 0.4)
"""Delays in seconds before each probe of a broker whose heartbeat connection was lost."""
FIRST_HEARTBEAT_WAIT_S = 10.0
"""Maximum time in seconds for which a new controller watches a broker without a heartbeat: longer than the session."""


class BrokerLivenessProbe:
    """Heartbeat connections of brokers to this controller, and the task that probes brokers after a disconnection."""

    def __init__(self, env: Env, node_id: int, controller: QuorumController) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._broker_by_peer: dict[Peer, tuple[int, int]] = {}
        self._disconnected: set[tuple[int, int]] = set()
        self._awaiting_heartbeat: dict[tuple[int, int], trio.CancelScope] = {}
        self._wakeup = trio.Event()

    def on_heartbeat(self, peer: Peer, broker_id: int, broker_epoch: int) -> None:
        """Record the connection of a heartbeat; its end triggers a probe of the broker.

        The watch of a new controller for the first heartbeat of this broker ends.
        """
        is_new = peer not in self._broker_by_peer
        self._broker_by_peer[peer] = broker_id, broker_epoch
        if is_new:
            peer.on_close(lambda: self._on_disconnect(peer))
        if (waiting := self._awaiting_heartbeat.pop((broker_id, broker_epoch), None)) is not None:
            waiting.cancel()

    def _on_disconnect(self, peer: Peer) -> None:
        broker = self._broker_by_peer.pop(peer, None)
        if broker is not None and self._controller.is_active:
            self._disconnected.add(broker)
            self._wake()

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Wake the task if the committed metadata may have another broker."""
        if delta.brokers:
            self._wake()

    def _wake(self) -> None:
        self._wakeup.set()
        self._wakeup = trio.Event()

    async def run(self) -> None:
        """Run the task until cancelled; it is idle on a node without other brokers."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._connect_to_new_brokers)
            led = -1
            while True:
                controller = self._controller
                if controller.is_active and controller.epoch != led:
                    led = controller.epoch
                    for broker in self._other_brokers():
                        if broker not in self._awaiting_heartbeat:
                            nursery.start_soon(self._watch_until_heartbeat, *broker)
                while self._disconnected:
                    nursery.start_soon(self._probe_broker, *self._disconnected.pop())
                with self._env.timeout(LEADERSHIP_CHECK_INTERVAL_S if self._other_brokers() else FOREVER_S):
                    await self._wakeup.wait()

    def _other_brokers(self) -> list[tuple[int, int]]:
        """Return id and epoch of each unfenced broker on another node."""
        brokers = self._controller.image.brokers
        return [(i, b.broker_epoch) for i, b in brokers.items() if i != self._node_id and not b.fenced]

    async def _connect_to_new_brokers(self) -> None:
        """Connect to each new broker until that succeeded once, and record it with the controller; never returns."""
        while True:
            probes = self._controller.machine.probes
            while not self._other_brokers():
                await self._wakeup.wait()
            changed = self._wakeup  # keeps this event: it may be set and replaced during a probe
            for broker_id, epoch in self._other_brokers():
                if not probes.has_reached(broker_id, epoch) and await self._probe(broker_id) is None:
                    probes.record_reached(broker_id, epoch)
            with self._env.timeout(CONNECT_RETRY_S):
                await changed.wait()  # the event: there may be a new broker

    async def _watch_until_heartbeat(self, broker_id: int, broker_epoch: int) -> None:
        """Hold a connection to a broker and probe the broker when it is closed; the first heartbeat ends this.

        After `FIRST_HEARTBEAT_WAIT_S` without either, or if the connection fails, the broker is probed too.
        """
        with trio.CancelScope() as until_heartbeat:
            self._awaiting_heartbeat[broker_id, broker_epoch] = until_heartbeat
            connection = await self._connect(broker_id)
            if not isinstance(connection, OSError):
                with contextlib.closing(connection), contextlib.suppress(OSError):
                    await connection.receive_into(memoryview(bytearray(1)), FIRST_HEARTBEAT_WAIT_S)
        if not until_heartbeat.cancelled_caught:
            self._awaiting_heartbeat.pop((broker_id, broker_epoch), None)
            await self._probe_broker(broker_id, broker_epoch)

    async def _probe_broker(self, broker_id: int, broker_epoch: int) -> None:
        for pause_s in PROBE_DELAYS_S:
            await self._env.sleep(pause_s)
            began_ms = self._env.monotonic_ms()
            error = await self._probe(broker_id)
            if error is None or not is_connection_refused(error):
                continue
            try:
                if await self._controller.submit(BrokerConnectionRefused(broker_id, broker_epoch, began_ms)):
                    logger.warning("Fencing broker %d because its listener refuses connections", broker_id)
            except (ProtocolError, OSError):
                pass  # another controller is active, or this node stops
            return

    async def _probe(self, broker_id: int) -> OSError | None:
        """Connect to a broker's first listener and disconnect; return the error, None on success."""
        connection = await self._connect(broker_id)
        if isinstance(connection, OSError):
            return connection
        connection.close()
        return None

    async def _connect(self, broker_id: int) -> Stream | OSError:
        """Return a TCP connection to a broker's first registered endpoint, which the caller closes, or the error.

        An unknown broker, and no connection within `CONNECT_TIMEOUT_S`, are errors too.
        """
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None or not broker.end_points:
            return OSError("it has no address")
        end = broker.end_points[0]
        try:
            return await connect(self._env, (end.host, end.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            return error
