"""Closing of idle connections where the process is about to run out of descriptors.

Some descriptors are left for the node's own files and for its connections to other nodes. A connection that comes when
only these are left takes the place of the one that was idle for longest, as at ``max.connections``; one on which
nothing was received yet, or that has not authenticated, counts as idle for a thousand times as long. (Kafka stops
accepting until a descriptor is free.)

Source: ``Processor.closeExcessConnections`` in ``SocketServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Protocol

UNUSED_IDLE_FACTOR = 1000
"""Factor on the idle time of a connection that has sent no byte or has not authenticated."""
CLOSED_FRACTION = 64
"""Fraction of the connections that is closed at a time, so that scans are rare."""


class ClosableConnection(Protocol):
    """A connection: `ottla.broker.network.connection.Connection`."""

    has_received: bool
    is_authenticated: bool
    is_closed: bool

    def idle_ms(self, now_ms: float) -> float:
        """Return for how long the client has neither sent a request nor read a response."""

    def close(self) -> None:
        """Close the connection."""


def close_most_idle(connections: Iterable[ClosableConnection], now_ms: float) -> int:
    """Close the connections that were idle for longest; return how many."""
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
