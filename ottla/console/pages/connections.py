"""Page of the client connections of this node."""

from __future__ import annotations

from typing import Any

from ottla.console.page import PageRequest, View
from ottla.console.pages.frames import API_NAMES, may_capture, number_connections
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType

_SEARCHED = ("host", "listener", "principal", "client_id", "software", "last_api")


async def get_connections(page: PageRequest) -> View:
    """Return the connections that match the query ``q``, sorted by host and client id."""
    values: dict[str, Any] = {
        "title": "Connections",
        "rows": None,
        "paging": None,
        "q": "",
        "shows_frames": False,
        "apis": list(API_NAMES),
    }
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("connections.html", values)
    wanted, now_ms = page.fields.get("q", "").strip().lower(), page.node.local.env.monotonic_ms()
    every = [
        {"number": number, **connection.describe(now_ms)._asdict()} for number, connection in number_connections(page)
    ]
    if wanted:
        every = [row for row in every if any(wanted in str(row[name]).lower() for name in _SEARCHED)]
    every.sort(key=lambda row: (row["host"], row["client_id"], row["number"]))
    rows, paging = paginate(page, every)
    for row in rows:
        connection = page.node.connection_numbers.find(row["number"])
        row["byte_counts"] = None if connection is None else connection.byte_counts()
    values |= {"rows": rows, "paging": paging, "q": wanted, "shows_frames": may_capture(page)}
    return View("connections.html", values)
