"""Connections of clients to this node."""

from __future__ import annotations

from ottla.console.page import PageRequest, View
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType


async def get_connections(page: PageRequest) -> View:
    """Return the connections, those with the most recent requests first."""
    values = {"title": "Connections", "rows": None, "paging": None, "q": ""}
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("connections.html", values)
    wanted, now_ms = page.fields.get("q", "").strip().lower(), page.node.local.env.monotonic_ms()
    acceptors = page.node.components.acceptors
    every = [connection.describe(now_ms) for acceptor in acceptors for connection in acceptor.connections]
    if wanted:
        every = [row for row in every if any(wanted in str(value).lower() for value in row[:6])]
    every.sort(key=lambda row: (row.host, row.client_id, row.listener, row.last_api))
    rows, paging = paginate(page, every)
    return View("connections.html", {**values, "rows": rows, "paging": paging, "q": wanted})
