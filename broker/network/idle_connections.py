"""Closing of idle connections when the process runs short of file descriptors.

Some descriptors are reserved for the node's own files and for its connections to other nodes. When only these are left,
the connections that were idle for longest are closed for a new one, as at ``max.connections``. The idle time counts a
thousandfold for a connection that has sent no bytes or has not authenticated. (Kafka stops accepting until a descriptor
is free.)

Source: ``Processor.closeExcessConnections`` in ``SocketServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Protocol

UNUSED_IDLE_FACTOR = 1000
"""Factor on the idle time of a connection that has sent no bytes or has not authenticated."""
CLOSED_FRACTION = 64
"""Divisor: one in 64 connections is closed at a time, so that scans are rare."""


class ClosableConnection(Protocol):
    """Connection as `close_most_idle` uses it; implemented by `ottla.broker.network.connection.Connection`."""

    has_received: bool
    is_authenticated: bool
    is_closed: bool

    def idle_ms(self, now_ms: float) -> float:
        """Return how long (ms) the client has neither sent a request nor read a response; 0 during a request.

        ``now_ms``: monotonic time.
        """

    def close(self) -> None:
        """Close the connection and set ``is_closed``; the connection's task ends by itself."""


def close_most_idle(connections: Iterable[ClosableConnection], now_ms: float) -> int:
    """Close one in `CLOSED_FRACTION` connections, at least one; return the number closed, 0 if none is open.

    Those idle for longest are closed first; unused ones count as idle for far longer. ``now_ms``: monotonic time.
    """
    open_ones = [connection for connection in connections if not connection.is_closed]
    if not open_ones:
        return 0

    def idleness(connection: ClosableConnection) -> float:
        idle_ms = connection.idle_ms(now_ms)
        is_used = connection.has_received and connection.is_authenticated
        return idle_ms if is_used else (idle_ms + 1) * UNUSED_IDLE_FACTOR

    closed = nlargest(max(1, len(open_ones) // CLOSED_FRACTION), open_ones, key=idleness)
    for connection in closed:
        connection.close()
    return len(closed)
