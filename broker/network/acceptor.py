"""Acceptor of a listener: accepts connections, serves each in a task of its own, and closes idle ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import trio

from ottla.broker.config.limits import MAX_IDLE_CHECK_S
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.network.connection import Connection
from ottla.broker.network.idle_connections import close_most_idle
from ottla.env.env import AcceptedStream, StreamListener
from ottla.jobs.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.dispatch.rate_limited_log import RateLimitedLog
    from ottla.broker.network.connection_limiter import ConnectionLimiter
    from ottla.broker.security.authn.listener_security import ListenerSecurity

logger = logging.getLogger("ottla.connection")

_MIN_IDLE_CHECK_S = 0.05
NO_IDLE_LIMIT_MS = 2**63
_ACCEPTED_PER_STEP = 8
"""Connections accepted between two yields; with 64, other connections would wait twice as long in a burst."""
_REPORTED_PER_STEP = 500
"""Connections that report their prepared requests between two yields."""


class Acceptor:
    """Acceptor and open connections of one listener."""

    def __init__(self, dispatcher: Dispatcher, security: ListenerSecurity | None = None) -> None:
        """Create an acceptor; ``dispatcher`` handles the requests of its connections.

        ``security``: TLS and SASL settings of the listener, None for PLAINTEXT.
        """
        self._dispatcher = dispatcher
        self._security = security
        self.node_acceptors: Sequence[Acceptor] = (self,)
        """Acceptors of all listeners of the node, including this one."""
        self._connections: set[Connection] = set()
        self.connection_limiter: ConnectionLimiter | None = None
        """Limiter of the number and rate of connections; None without limits."""

    @property
    def listener(self) -> str:
        """Name of the listener."""
        return self._dispatcher.listener

    @property
    def security(self) -> ListenerSecurity | None:
        """Security settings of the listener; None for PLAINTEXT."""
        return self._security

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def connection_log(self) -> RateLimitedLog:
        """Rate-limited log of the listener's connections."""
        return self._dispatcher.connection_log

    @property
    def connections(self) -> Iterable[Connection]:
        """Open connections of the listener."""
        return self._connections

    def report_prepared(self) -> Job[None]:
        """Return a job in which each connection reports what prepared requests have answered since its last report."""
        for number, connection in enumerate(list(self._connections), 1):
            connection.report_prepared()
            if number % _REPORTED_PER_STEP == 0:
                yield None

    async def run(self, listener: StreamListener) -> None:
        """Accept and serve connections until cancelled, which closes all connections."""
        listener.on_descriptors_low = self._close_idle
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_idle_connections)
            for number in count(1):
                if number % _ACCEPTED_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()  # no connection is accepted yet: cancellation loses none
                stream = await listener.accept()
                if self.connection_limiter is not None:
                    held_ms = await self.connection_limiter.admit(self._dispatcher.listener, stream)
                    if held_ms is not None:
                        nursery.start_soon(self.connection_limiter.close_later, stream, held_ms)
                        continue
                connection = self._create_connection(stream)
                self._connections.add(connection)
                nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            if self.connection_limiter is not None:
                self.connection_limiter.on_closed(self._dispatcher.listener, connection)

    def _close_idle(self) -> int:
        """Close idle connections of the listener with most connections of this node; return how many were closed.

        The stream listener calls it when file descriptors are short.
        """
        largest = max(self.node_acceptors, key=len)
        closed = close_most_idle(largest.connections, self._dispatcher.services.env.monotonic_ms())
        if closed:
            text = "Too many open files: closed the %d most idle of %d connections"
            self.connection_log.log(logger, logging.WARNING, text, closed, len(largest))
        return closed

    def _create_connection(self, stream: AcceptedStream) -> Connection:
        if self._security is None:
            return Connection(self._dispatcher, stream)
        # lazy: 3.7 ms, 120 kB
        from ottla.broker.network.secure_connection import SecureConnection

        return SecureConnection(self._dispatcher, stream, self._security)

    async def _close_idle_connections(self) -> None:
        """Close connections idle for longer than ``connections.max.idle.ms`` by a periodic scan, until cancelled.

        A scan costs less than a time-out for every wait. A negative limit is unlimited
        (``Selector.NO_IDLE_TIMEOUT_MS``), except before authentication: on a PLAINTEXT listener this then returns.
        """
        services = self._dispatcher.services
        limit_ms = services.config.number("connections.max.idle.ms")
        if limit_ms < 0:
            if self._security is None:
                return
            limit_ms = NO_IDLE_LIMIT_MS
        while True:
            await services.env.sleep(min(max(limit_ms / 4000, _MIN_IDLE_CHECK_S), MAX_IDLE_CHECK_S))
            now_ms = services.env.monotonic_ms()
            for connection in list(self._connections):
                if connection.idle_ms(now_ms) > limit_ms:  # infinite after the authentication timeout
                    connection.close()
