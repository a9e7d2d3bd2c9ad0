"""Connections of the HTTP server: their number, slow clients, large responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.config.limits import MAX_HTTP_CONNECTIONS
from ottla.broker.network.http.http_messages import HttpRequest, HttpResponse
from ottla.broker.network.http.http_server import HttpLimits, HttpServer
from ottla.broker.network.http.tests.http_fixture import HttpFixture, in_server
from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.env.tests.reference_cycles import count_cycles

GET = b"GET /metrics HTTP/1.0\r\n\r\n"


def test_connection_beyond_limit_replaces_oldest_idle_or_oldest() -> None:
    async def run(server: HttpFixture) -> None:
        idle = [await server.connect() for _ in range(MAX_HTTP_CONNECTIONS + 8)]
        assert [stream.is_closed for stream in idle] == [True] * 8 + [False] * MAX_HTTP_CONNECTIONS
        served = await server.connect(GET)
        assert served.received.startswith(b"HTTP/1.1 200 OK")
        waiting = [await server.connect(GET, reads=False) for _ in range(MAX_HTTP_CONNECTIONS)]
        assert all(stream.is_closed for stream in idle)
        assert (await server.connect(GET)).received.startswith(b"HTTP/1.1 200 OK"), "slow readers keep nothing out"
        assert [stream.is_closed for stream in waiting] == [True] + [False] * (MAX_HTTP_CONNECTIONS - 1)
        await trio.sleep(11)
        assert all(stream.is_closed for stream in waiting), "slow readers are disconnected"

    in_server(run)


def test_thousand_connections_leave_the_limit_open_and_a_request_is_served() -> None:
    async def run(server: HttpFixture) -> None:
        streams = [await server.connect() for _ in range(1000)]
        assert sum(not stream.is_closed for stream in streams) == MAX_HTTP_CONNECTIONS
        assert (await server.connect(GET)).received.startswith(b"HTTP/1.1 200 OK")

    in_server(run)


def test_connection_without_request_is_closed_after_ten_seconds() -> None:
    async def run(server: HttpFixture) -> None:
        silent = await server.connect()
        await trio.sleep(9.9)
        assert not silent.is_closed
        await trio.sleep(0.2)
        assert silent.is_closed
        left = await server.connect()
        left.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        assert left.is_closed

    in_server(run)


def test_request_that_arrives_byte_by_byte_is_cut_off_after_ten_seconds() -> None:
    async def run(server: HttpFixture) -> None:
        slow = await server.connect()
        for _ in range(10):
            assert not slow.is_closed
            slow.send_bytes(b"G")
            await trio.sleep(1)
        await trio.sleep(0.1)
        assert (slow.is_closed, slow.received) == (True, b"")

    in_server(run)


def test_large_response_is_sent_in_pieces_and_a_reader_that_stops_is_disconnected() -> None:
    async def large(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"x" * 1_000_000)

    async def run(server: HttpFixture) -> None:
        reader = await server.connect(GET)
        assert len(reader.received.partition(b"\r\n\r\n")[2]) == 1_000_000
        assert max(len(piece) for piece in reader.sends) < 70_000
        stopped = await server.connect(GET, reads=False)
        await trio.sleep(10.1)
        assert (stopped.is_closed, stopped.received) == (True, b"")

    in_server(run, large)


def test_body_of_refused_request_is_received_before_the_connection_is_closed() -> None:
    async def run(server: HttpFixture) -> None:
        stream = await server.connect(b"POST /metrics HTTP/1.0\r\nContent-Length: 9000\r\n\r\nabc")
        assert stream.received.startswith(b"HTTP/1.1 405 ")
        assert not stream.is_closed
        stream.send_bytes(b"x" * 8997)
        await trio.testing.wait_all_tasks_blocked()
        assert stream.is_closed

    in_server(run)


def test_body_of_refused_request_is_not_received_without_end() -> None:
    async def run(server: HttpFixture) -> None:
        stream = await server.connect(b"POST /metrics HTTP/1.0\r\nContent-Length: 99999999\r\n\r\n")
        stream.send_bytes(b"x" * 2_000_000)
        await trio.testing.wait_all_tasks_blocked()
        assert stream.is_closed

    in_server(run)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.0\r\nContent-Length: 9\r\n\r\n",
        b"GET /metrics HTTP/1.0\r\nContent-Length: 9\r\n\r\n",
        GET + GET,
    ],
)
def test_connection_that_stays_open_after_its_response_keeps_no_other_out(request_bytes: bytes) -> None:
    """A TLS handshake, no host, a body that does not come, a second request."""

    async def run(server: HttpFixture) -> None:
        answered = [await server.connect(request_bytes) for _ in range(MAX_HTTP_CONNECTIONS)]
        assert all(stream.received.startswith(b"HTTP/1.1 ") for stream in answered)
        assert b"bytearray" not in answered[0].received
        assert not any(stream.is_closed for stream in answered), "the response could be lost"
        assert (await server.connect(GET)).received.startswith(b"HTTP/1.1 200 OK")
        await trio.sleep(1.1)
        assert all(stream.is_closed for stream in answered)

    in_server(run)


def test_response_to_a_request_with_a_body_is_not_lost() -> None:
    async def run(server: HttpFixture) -> None:
        stream = await server.connect(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 300000\r\n\r\n"))
        assert stream.received.startswith(b"HTTP/1.1 200 OK")
        stream.send_bytes(b"x" * 299_999)
        await trio.testing.wait_all_tasks_blocked()
        assert not stream.is_closed
        stream.send_bytes(b"x")
        await trio.testing.wait_all_tasks_blocked()
        assert stream.is_closed

    in_server(run)


def test_error_in_a_handler_is_logged_and_fails_only_its_request(caplog: pytest.LogCaptureFixture) -> None:
    broken: list[Exception] = [RuntimeError("set changed size"), OSError(5, "Input/output error")]

    async def handle(_: HttpRequest) -> HttpResponse:
        if broken:
            raise broken.pop()
        return HttpResponse(HTTPStatus.OK, b"well")

    async def run(server: HttpFixture) -> None:
        waiting = await server.connect()
        for _ in range(2):
            failed = await server.connect(GET)
            assert failed.received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
            assert failed.received.endswith(b"\r\n\r\nInternal Server Error\n"), "nothing of the error is sent"
            assert failed.is_closed
        assert not waiting.is_closed
        assert (await server.connect(GET)).received.endswith(b"well")

    in_server(run, handle)
    assert [record.getMessage() for record in caplog.records] == ["HTTP /metrics failed: unexpected error"] * 2


def test_error_while_a_stream_is_made_ends_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        raise RuntimeError("set changed size")

    async def events(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, pieces(), "text/event-stream")

    async def run(server: HttpFixture) -> None:
        waiting = await server.connect()
        failed = await server.connect(GET)
        assert failed.received.endswith(b"data: 1\n\n")
        assert failed.is_closed
        assert not waiting.is_closed

    in_server(run, events)
    assert [record.getMessage() for record in caplog.records] == ["HTTP response failed: unexpected error"]


def test_handler_of_a_replaced_connection_is_cancelled() -> None:
    ended: list[int] = []

    async def slow(_: HttpRequest) -> HttpResponse:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(1)

    async def run(server: HttpFixture) -> None:
        for _ in range(MAX_HTTP_CONNECTIONS + 3):
            await server.connect(GET)
        assert len(ended) == 3

    in_server(run, slow)


def test_stream_is_sent_in_chunks_until_the_client_disconnects() -> None:
    closed: list[str] = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            for number in range(1000):
                yield b"data: %d\n\n" % number
                await trio.sleep(1)
        finally:
            closed.append("pieces")

    async def events(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, pieces(), "text/event-stream")

    async def run(server: HttpFixture) -> None:
        stream = await server.connect(GET.replace(b"1.0", b"1.1\r\nHost: localhost"))
        assert b"Transfer-Encoding: chunked" in stream.received
        await trio.sleep(30.5)
        assert stream.received.endswith(b"a\r\ndata: 30\n\n\r\n"), stream.received[-60:]
        assert not stream.is_closed, "a stream has no time limit"
        stream.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        assert (stream.is_closed, closed) == (True, ["pieces"])

    in_server(run, events)


def test_stream_to_a_reader_that_stops_ends_after_ten_seconds() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 100_000
            await trio.sleep(0.1)

    async def events(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, pieces(), "text/event-stream")

    async def run(server: HttpFixture) -> None:
        stopped = await server.connect(GET, reads=False)
        await trio.sleep(9)
        assert not stopped.is_closed
        await trio.sleep(2)
        assert stopped.is_closed

    in_server(run, events)


@pytest.mark.parametrize(("request_bytes", "reads"), [(GET, False), (GET, True), (GET.replace(b"GET", b"HEAD"), True)])
def test_stream_is_closed_with_its_connection(request_bytes: bytes, reads: bool) -> None:
    closed: list[str] = []

    class Pieces:
        def __aiter__(self) -> Pieces:
            return self

        async def __anext__(self) -> bytes:
            await trio.sleep(0.1)
            return b"x" * 100_000

        async def aclose(self) -> None:
            closed.append("pieces")

    async def events(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, Pieces(), "text/event-stream")

    async def run(server: HttpFixture) -> None:
        stream = await server.connect(request_bytes, reads=reads)
        await trio.sleep(1)
        stream.disconnect()
        await trio.sleep(11)
        assert (stream.is_closed, closed) == (True, ["pieces"])

    in_server(run, events)


def test_body_within_the_limit_reaches_the_handler_and_a_larger_one_is_refused() -> None:
    async def echo(request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, request.body)

    async def run() -> None:
        env: Any = ConnectionEnv()
        fixture = HttpFixture()
        server = HttpServer(env, lambda _: echo, (), HttpLimits(body_bytes=10))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, fixture.listener)
            for size, status in ((0, b"200"), (10, b"200"), (11, b"413")):
                head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
                stream = await fixture.connect(head + b"x" * size)
                assert stream.received.split()[1] == status
                assert status != b"200" or stream.received.endswith(b"\r\n\r\n" + b"x" * size)
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


def test_malformed_requests_leave_no_reference_cycles() -> None:
    """Full collections of a node are rare; a cycle would keep the buffers of its connection."""

    async def run(server: HttpFixture) -> None:
        async def send_malformed() -> None:
            for request in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 9000):
                stream = await server.connect(request)
                stream.disconnect()
                await trio.testing.wait_all_tasks_blocked()

        await send_malformed()
        counts: list[int] = []
        for _ in range(3):
            with count_cycles(counts):
                for _ in range(20):
                    await send_malformed()
        assert min(counts) < 60

    in_server(run)
