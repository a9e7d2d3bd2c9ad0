"""Client connections of a node as JSON, on the HTTP listener at ``/connections``.

The rows name clients, addresses and principals, and the listener has no authentication. So the list is sent to this
machine only, and not by a node with an authorizer: the console shows it to users with DESCRIBE on the cluster.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection
from typing import Any

from ottla.broker.network.connection import Connection
from ottla.jobs.job import Job
from ottla.jobs.sequences import sort_job

PROXY_FIELDS = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
ROWS_OF_A_PIECE = 100
BY_OTHER_MACHINE = "the list of connections is sent to the machine of the node only"
BY_AUTHORIZER = "the node has an authorizer: its console lists the connections to users with DESCRIBE on the cluster"


def refusal(peer: str, header_names: Collection[str] = (), *, has_authorizer: bool) -> str:
    """Return the reason why the list is not sent to the IP address ``peer``; empty if it is sent.

    ``header_names``: names of the request's header fields in lower case. A proxy on this machine adds one of
    `PROXY_FIELDS` to the requests of other machines. ``has_authorizer``: True if the node has one; then the list is
    never sent.
    """
    if has_authorizer:
        return BY_AUTHORIZER
    if not PROXY_FIELDS.isdisjoint(header_names):
        return BY_OTHER_MACHINE
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return BY_OTHER_MACHINE
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 peer of a listener for both
    return "" if (mapped or address).is_loopback else BY_OTHER_MACHINE


def _row(connection: Connection, now_ms: float) -> dict[str, Any]:
    seen, counts = connection.describe(now_ms), connection.byte_counts()
    return {
        "client_id": seen.client_id,
        "software": seen.software,
        "address": seen.host,
        "listener": seen.listener,
        "principal": seen.principal if seen.is_authenticated else None,
        "api_versions": list(seen.api_versions),
        "last_request": seen.last_api,
        "idle_ms": round(seen.idle_ms),
        "pending_bytes": seen.pending_bytes,
        "throttled_ms": seen.throttled_ms,
        "received_bytes": None if counts is None else counts[0],
        "sent_bytes": None if counts is None else counts[1],
    }


def render_connections(node_id: int, connections: Collection[Connection], now_ms: float) -> Job[list[bytes]]:
    """Return pieces of the JSON document with a row for each connection, as a job that yields after each row.

    The rows are sorted by their JSON text, so first by client id. ``now_ms``: monotonic time.
    """
    rows = []
    for connection in connections:
        rows.append(json.dumps(_row(connection, now_ms)))
        yield None
    rows = yield from sort_job(rows)
    pieces = [f'{{"node_id": {node_id}, "connections": ['.encode()]
    for first in range(0, len(rows), ROWS_OF_A_PIECE):
        pieces.append((", " * (first > 0) + ", ".join(rows[first : first + ROWS_OF_A_PIECE])).encode())
        yield None
    pieces.append(b"]}\n")
    return pieces
