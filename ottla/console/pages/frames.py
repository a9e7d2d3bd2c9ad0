"""Page of the frames of one connection, captured while the page is open."""

from __future__ import annotations

from ottla.console.frame_capture import FrameCapture
from ottla.console.page import InvalidInput, PageRequest, View, audit
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ErrorCode, ProtocolError


def may_capture(page: PageRequest) -> bool:
    """Return True if the session may see others' requests: with ALTER on the cluster it could grant that itself."""
    return page.client.may(AclOperation.ALTER, ResourceType.CLUSTER)


def _check_permission(page: PageRequest) -> None:
    if not may_capture(page):
        raise ProtocolError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "The frames of a connection need ALTER on the cluster."
        )


async def get_frames(page: PageRequest) -> View:
    """Return the page of a connection, without frames: they are captured while the page is open.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the connection is closed.
    """
    _check_permission(page)
    number = page.number("connection", 0, 1)
    connection = page.node.connection_numbers.find(number)
    if connection is None:
        raise InvalidInput(f"Connection {number} is closed.")
    description = connection.describe(page.node.local.env.monotonic_ms())
    values = {"title": f"Requests of connection {number}", "connection": description, "exchanges": []}
    return View("frames.html", {**values, "is_closed": False})


async def get_new_frames(page: PageRequest) -> View:
    """Return the live block of the page: the newest captured frames; the first call starts the capture.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the connection is closed.
    """
    _check_permission(page)
    memory, number = page.memory, page.number("connection", 0, 1)
    connection = page.node.connection_numbers.find(number)
    if "capture" not in memory:
        if connection is None:
            raise InvalidInput(f"Connection {number} is closed.")
        memory["capture"] = capture = FrameCapture(page.node.local.env, connection)
        memory["close"] = capture.close
        memory["is_closed"] = False
        audit(page, f"Show requests of connection {number}", "started")
    capture = memory["capture"]
    if capture.is_changed or memory["is_closed"] is not (connection is None):
        memory["is_closed"] = connection is None
        exchanges = await run_in_background(page.node.local.env, capture.read_exchanges())
        values = {"exchanges": exchanges, "is_closed": memory["is_closed"]}
        memory["view"] = View("frames.html", values)
    view: View = memory["view"]
    return view
