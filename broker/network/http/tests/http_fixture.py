"""HTTP server with in-memory connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from ottla.broker.network.http.http_messages import HttpHandler, HttpRequest, HttpResponse, route_by_path
from ottla.broker.network.http.http_server import HttpServer
from ottla.broker.tests.connection_fixture import ClientStream, ConnectionEnv, FakeListener, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b"page\n" * 100


async def get_page(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, BODY)


class HttpFixture:
    """Running server; `connect` opens a connection to it."""

    def __init__(self) -> None:
        self.listener: Any = FakeListener()

    async def connect(self, request: bytes = b"", *, reads: bool = True, most_bytes: int = 2**31) -> ClientStream:
        stream = ClientStream(reads=reads)
        stream.most_bytes = most_bytes
        await self.listener.send.send(stream)
        if request:
            stream.send_bytes(request)
        await trio.testing.wait_all_tasks_blocked()
        return stream


@asynccontextmanager
async def http_server(handler: HttpHandler = get_page, allowed: tuple[str, ...] = ()) -> AsyncIterator[HttpFixture]:
    """Serve ``/metrics`` and ``/`` with a handler."""
    env: Any = ConnectionEnv()
    fixture = HttpFixture()
    server = HttpServer(env, route_by_path({"/metrics": handler, "/": handler}), allowed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, fixture.listener)
        yield fixture
        nursery.cancel_scope.cancel()


def exchange(request: bytes, most_bytes: int = 2**31, allowed: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
    """Return the status line with the header fields, and the body, of the response to a request."""
    received = b""

    async def run() -> None:
        nonlocal received
        async with http_server(allowed=allowed) as server:
            stream = await server.connect(request, most_bytes=most_bytes)
            received = stream.received

    in_virtual_time(run)
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def in_server(work: Callable[[HttpFixture], Awaitable[None]], handler: HttpHandler = get_page) -> None:
    """Run a function with a server in virtual time."""

    async def run() -> None:
        async with http_server(handler) as server:
            await work(server)

    in_virtual_time(run)
