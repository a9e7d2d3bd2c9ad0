"""HTTP as the page of numbers understands it: methods, targets, versions, limits."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.observability import metrics_endpoint
from ottla.broker.observability.tests.test_metrics_endpoint import numbers
from ottla.broker.tests.connection_fixture import ClientStream, ConnectionEnv, FakeListener, in_virtual_time


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics?name[]=a&b=c HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /?x HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics#x HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET http://a:9308/metrics?x HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET HTTP://a:9308 HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET http://a:9308/other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"\r\nGET /metrics HTTP/1.1\nHost: x\n\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nConnection: keep-alive\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"PUT /metrics HTTP/1.0\r\ncontent-length: 9\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"OPTIONS /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"TRACE / HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"get /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"431 Request Header Fields Too Large"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1 x\r\n\r\n", b"400 Bad Request"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01", b"400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\n", b"505 HTTP Version Not Supported"),
    ],
)
@pytest.mark.parametrize("most", [7, 100_000])
def test_the_page_is_had_with_get_in_whatever_pieces_it_is_asked_for(asked: bytes, status: bytes, most: int) -> None:
    line = ClientStream()
    line.most_bytes = most

    async def run() -> None:
        world: Any = ConnectionEnv()
        door: Any = FakeListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
            await door.send.send(line)
            line.send_bytes(asked)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    head, body = line.received.split(b"\r\n\r\n", 1)
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 " + status
    assert f"Content-Length: {len(body)}".encode() in head
    assert (b"ottla_scrub_damage_total 11" in body) == (status == b"200 OK")
    assert (b"\r\nAllow: GET, HEAD\r\n" in head) == status.startswith(b"405")
    assert line.is_closed


@pytest.mark.parametrize(
    ("target", "status"), [(b"/metrics", b"200 OK"), (b"/?a=b", b"200 OK"), (b"/other", b"404 Not Found")]
)
def test_head_has_the_fields_of_get_and_no_body(target: bytes, status: bytes) -> None:
    heard = []
    for method in (b"GET", b"HEAD"):
        line = ClientStream()

        async def run(line: ClientStream = line, method: bytes = method) -> None:
            world: Any = ConnectionEnv()
            door: Any = FakeListener()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
                await door.send.send(line)
                line.send_bytes(method + b" " + target + b" HTTP/1.1\r\n\r\n")
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

        in_virtual_time(run)
        heard.append(line.received.partition(b"\r\n\r\n"))
    assert heard[1][0] == heard[0][0]
    assert heard[0][0].startswith(b"HTTP/1.1 " + status)
    assert heard[0][2] != b""
    assert heard[1][2] == b""


def test_a_client_that_sends_its_request_slowly_is_let_go_after_ten_seconds() -> None:
    line = ClientStream()

    async def run() -> None:
        world: Any = ConnectionEnv()
        door: Any = FakeListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
            await door.send.send(line)
            for _ in range(10):
                assert not line.is_closed
                line.send_bytes(b"G")
                await trio.sleep(1)
            await trio.sleep(0.1)
            assert (line.is_closed, line.received) == (True, b"")
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


def test_a_refused_request_is_received_to_its_end_before_the_connection_is_closed() -> None:
    """Closed before, the connection is reset, and the client may lose the response."""
    line = ClientStream()

    async def run() -> None:
        world: Any = ConnectionEnv()
        door: Any = FakeListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
            await door.send.send(line)
            line.send_bytes(b"POST /metrics HTTP/1.1\r\nContent-Length: 9000\r\n\r\nabc")
            await trio.testing.wait_all_tasks_blocked()
            assert line.received.startswith(b"HTTP/1.1 405 ")
            assert not line.is_closed
            line.send_bytes(b"x" * 8997)
            await trio.testing.wait_all_tasks_blocked()
            assert line.is_closed
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
