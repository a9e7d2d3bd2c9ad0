"""Enforcement of `ConnectionQuotas`: delays new connections, closes throttled ones later, and closes excess ones.

Loaded once there is a limit. Source: ``Acceptor``, ``Processor.closeExcessConnections`` in ``SocketServer.scala``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.quotas.connection_quotas import ConnectionLimits, ConnectionQuotas
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import FOREVER_S, AcceptedStream, Env

if TYPE_CHECKING:
    from ottla.broker.dispatch.rate_limited_log import RateLimitedLog

logger = logging.getLogger("ottla.connection")


class LimitedConnection(Protocol):
    """Connection as `ConnectionLimiter` uses it; implemented by `ottla.broker.network.connection.Connection`."""

    @property
    def host(self) -> str:
        """IP address of the client."""

    def idle_ms(self, now_ms: float) -> float:
        """Return how long (ms) the client has neither sent a request nor read a response; 0 during a request.

        ``now_ms``: monotonic time.
        """

    def close(self) -> None:
        """Close the connection; its task ends by itself, and then `ConnectionLimiter.on_closed` is called."""


class LimitedListener(Protocol):
    """Listener with its connections, as `ConnectionLimiter` uses it; implemented by `Acceptor`."""

    connection_limiter: ConnectionLimiter | None

    @property
    def connection_log(self) -> RateLimitedLog:
        """Rate-limited log of the listener's connections."""

    @property
    def connections(self) -> Iterable[LimitedConnection]:
        """Open connections of the listener."""


class ConnectionLimiter:
    """Limiter of the number and rate of connections: one for all broker listeners, one for all controller listeners."""

    def __init__(
        self, env: Env, config: NodeConfig, listeners: Mapping[str, LimitedListener], protected: str | None
    ) -> None:
        """Create the limiter of ``listeners`` (by name), set it as theirs, and count their existing connections.

        ``protected`` is the inter-broker listener: its connections are not closed for others; None without one. There
        are no limits before `publish`.
        """
        self._env, self._config, self._listeners = env, config, listeners
        self._quotas = ConnectionQuotas(protected if len(listeners) > 1 else None)
        self._closing: set[LimitedConnection] = set()
        self._changed = trio.Event()
        for name, listener in listeners.items():
            listener.connection_limiter = self
            for connection in listener.connections:
                self._quotas.add_existing(name, connection.host)

    def publish(self, image: MetadataImage) -> None:
        """Apply the connection limits of a new metadata image; close excess connections.

        If a limit is invalid, this is logged, and all former limits stay.
        """
        try:
            self._quotas.limits = ConnectionLimits.from_config(self._config, image, self._listeners)
        except ValueError as error:
            logger.warning("Invalid connection limits, keeping the former ones: %s", error)
        self._close_excess()
        self._notify()

    async def admit(self, listener: str, stream: AcceptedStream) -> int | None:
        """Wait until a connection may be accepted, and count it. The listener accepts no other connection meanwhile.

        A connection of the protected listener does not wait for the total limit: the most idle connection of another
        listener is closed for it. On cancellation ``stream`` is closed.

        Returns:
            None if it is accepted; else the delay in ms after which the caller must close it, 0 for at once.
        """
        quotas, env = self._quotas, self._env
        try:
            until_ms = env.monotonic_ms()
            until_ms += quotas.record_and_get_throttle_ms(listener, until_ms)
            while True:
                left_ms = until_ms - env.monotonic_ms()
                if left_ms <= 0 and quotas.is_slot_available(listener):
                    break
                with env.timeout(left_ms / 1000 if left_ms > 0 else FOREVER_S):
                    await self._changed.wait()
        except BaseException:
            stream.close()
            raise
        held_ms = quotas.ip_throttle_ms(listener, stream.peer, env.monotonic_ms())
        if held_ms:
            return held_ms
        if not quotas.increment(listener, stream.peer):
            text = "Rejected connection from %s: too many connections from this IP address (max.connections.per.ip)"
            self._listeners[listener].connection_log.log(logger, logging.INFO, text, stream.peer)
            return 0
        self._close_excess()
        return None

    async def close_later(self, stream: AcceptedStream, held_ms: int) -> None:
        """Close a connection after ``held_ms``, or on cancellation, without reading from it."""
        try:
            if held_ms:
                await self._env.sleep(held_ms / 1000)
        finally:
            stream.close()

    def on_closed(self, listener: str, connection: LimitedConnection) -> None:
        """Release the slot of a closed connection, which may let a waiting one in."""
        self._quotas.decrement(listener, connection.host)
        self._closing.discard(connection)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _close_excess(self) -> None:
        """Close the connections above the limit, those idle for longest first; none of the protected listener."""
        excess = self._quotas.excess - len(self._closing)
        if excess <= 0:
            return
        now_ms = self._env.monotonic_ms()
        others = [
            connection
            for name, listener in self._listeners.items()
            if not self._quotas.is_protected(name)
            for connection in listener.connections
            if connection not in self._closing
        ]
        others.sort(key=lambda connection: -connection.idle_ms(now_ms))
        for connection in others[:excess]:
            self._closing.add(connection)
            connection.close()
