"""Pages of frames: of one connection or one API while the page is open, of one request and response, and as pcap."""

from __future__ import annotations

from http import HTTPStatus

from ottla.broker.network.connection import Connection
from ottla.broker.network.http.http_messages import HttpResponse
from ottla.console.frame_capture import CapturedExchange, FrameCapture
from ottla.console.frame_fields import FrameFieldList, build_hex_dump
from ottla.console.page import InvalidInput, PageRequest, View, audit
from ottla.console.pcap import MEDIA_TYPE, write_pcap
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError

API_NAMES = {key.api_name: key for key in sorted(ApiKey, key=lambda key: key.api_name)}
REPLACED = "These frames are no longer kept: newer ones have replaced them, or the session has ended."


def may_capture(page: PageRequest) -> bool:
    """Return True if the session may see the requests of other clients: it has ALTER on the cluster.

    With that permission it could change the ACLs and read their records anyway.
    """
    return page.client.may(AclOperation.ALTER, ResourceType.CLUSTER)


def _check_permission(page: PageRequest) -> None:
    if not may_capture(page):
        raise ProtocolError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "The frames of a connection need ALTER on the cluster."
        )


def number_connections(page: PageRequest) -> list[tuple[int, Connection]]:
    """Return all connections of the node with their numbers."""
    connections = [each for acceptor in page.node.components.acceptors for each in acceptor.connections]
    return list(zip(page.node.connection_numbers.assign(connections), connections, strict=True))


def _selected_api(page: PageRequest) -> ApiKey | None:
    """Return the API that the query names; None if it names a connection.

    Raises:
        InvalidInput: there is no such API.
    """
    name = page.fields.get("api", "").strip()
    if name and name not in API_NAMES:
        raise InvalidInput(f"api: there is no API {name[:60]}")
    return API_NAMES.get(name)


def _find_connection(page: PageRequest) -> Connection | None:
    return page.node.connection_numbers.find(page.number("connection", 0, 1))


def _open_connection(page: PageRequest) -> Connection:
    """Return the connection that the query names.

    Raises:
        InvalidInput: it is closed.
    """
    connection = _find_connection(page)
    if connection is None:
        raise InvalidInput(f"Connection {page.number('connection', 0, 1)} is closed.")
    return connection


async def get_frames(page: PageRequest) -> View:
    """Return the page of a connection or an API, without frames: they are captured while the page is open.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the connection is closed, or no such API.
    """
    _check_permission(page)
    key = _selected_api(page)
    description = None
    observed = "" if key is None else key.api_name
    if key is None:
        description = _open_connection(page).describe(page.node.local.env.monotonic_ms())
        observed = f"connection {page.number('connection', 0, 1)}"
    empty = {"exchanges": [], "capture": "", "end": "", "skipped": 0}
    return View("frames.html", {"title": f"Requests of {observed}", "connection": description, **empty})


def _start_capture(page: PageRequest) -> FrameCapture:
    """Create and return a capture for the query's connection or API; it is closed when the live page ends.

    The start is logged. `get_new_frames` selects the connections that it observes.

    Raises:
        InvalidInput: the connection is closed, or there is no such API.
    """
    key = _selected_api(page)
    observed = f"connection {page.number('connection', 0, 1)}" if key is None else key.api_name
    if key is None:
        _open_connection(page)
    capture = FrameCapture(page.node.local.env, page.session.id, key)
    page.node.frame_captures.add(capture)
    page.memory.update(capture=capture, close=capture.close, end="", skipped=0)
    audit(page, f"Show requests of {observed}", "started")
    return capture


async def get_new_frames(page: PageRequest) -> View:
    """Return the live block of the page: the newest captured frames; the first call starts the capture.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: at the first call, the connection is closed, or
            there is no such API; later the block states that the connection is closed.
    """
    _check_permission(page)
    memory = page.memory
    capture: FrameCapture = memory["capture"] if "capture" in memory else _start_capture(page)
    end = "" if capture.is_open else "The capture has ended: newer ones have replaced it."
    if capture.key is not None:
        capture.observe(number_connections(page))
    elif (connection := _find_connection(page)) is None:
        end = "The connection is closed."
    else:
        capture.observe([(page.number("connection", 0, 1), connection)])
    if capture.is_changed or memory["end"] != end:
        memory["end"] = end
        exchanges = await run_in_background(page.node.local.env, capture.read_exchanges())
        skipped = capture.skipped
        values = {"exchanges": exchanges, "end": end, "capture": capture.id, "skipped": skipped}
        memory["view"] = View("frames.html", values, is_flooded=skipped > memory["skipped"])
        memory["skipped"] = skipped
    view: View = memory["view"]
    return view


def _find_capture(page: PageRequest) -> FrameCapture:
    """Return the capture that the query names.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the capture was replaced.
    """
    _check_permission(page)
    capture = page.node.frame_captures.find(page.text("capture"), page.session.id)
    if capture is None:
        raise InvalidInput(REPLACED)
    return capture


def _describe_frames(exchange: CapturedExchange) -> Job[list[dict[str, object]]]:
    """Return fields and hex dump of the request and the response of an exchange, as a job.

    Keys: ``name``, ``size`` in bytes (None for a response that does not exist yet), ``fields``, ``rows`` (hex dump) and
    ``problem``, which is empty if all is shown. The fields of both are numbered consecutively. A frame that was not
    captured has a ``problem`` that states why.
    """
    out: list[dict[str, object]] = []
    first = 0
    request, response = (yield from exchange.request_fields()), (yield from exchange.response_fields())
    parts = (("Request", exchange.request_bytes, request), ("Response", exchange.response_bytes, response))
    for name, size, found in parts:
        raw, listed = (b"", FrameFieldList([], "")) if found is None else found
        fields = [field._replace(number=field.number + first) for field in listed.fields]
        rows = yield from build_hex_dump(raw, fields)
        first += len(fields)
        problem = listed.problem
        if found is None:
            problem = "There is none so far." if size is None else f"{size:,} bytes: not kept."
        out.append({"name": name, "size": size, "fields": fields, "rows": rows, "problem": problem})
    return out


async def get_frame(page: PageRequest) -> View:
    """Return the page of one captured request and its response: bytes, fields, and the time of each stage.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the frames were replaced.
    """
    exchange = _find_capture(page).find(page.number("number", 0, 1))
    if exchange is None:
        raise InvalidInput(REPLACED)
    frames = await run_in_background(page.node.local.env, _describe_frames(exchange))
    return View("frame.html", {"title": f"{exchange.name}", "exchange": exchange, "frames": frames})


def _write_capture(capture: FrameCapture) -> Job[list[bytes]]:
    frames = []
    for exchange in capture.exchanges.copy():
        frames += yield from exchange.pcap_frames()
    frames.sort(key=lambda frame: frame.time_ms)
    out = []
    for part in write_pcap(frames):
        out.append(part)
        yield None
    return out


async def get_pcap(page: PageRequest) -> HttpResponse:
    """Return the captured frames as a pcap file, and log the download; what pages hide is zeros in it.

    Raises:
        ProtocolError: the session is not authorized. InvalidInput: the capture was replaced.
    """
    capture = _find_capture(page)
    parts = await run_in_background(page.node.local.env, _write_capture(capture))
    audit(page, "Save captured requests", f"{len(capture.exchanges)} requests")
    headers = (("Content-Disposition", 'attachment; filename="ottla.pcap"'),)
    return HttpResponse(HTTPStatus.OK, parts, MEDIA_TYPE, headers)
