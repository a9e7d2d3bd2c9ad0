"""Requests that were prepared for, and the time slices of requests that come one after the other."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.network.tests.test_connection import BEAT, beat, numbers
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.wire.framing import encode_response
from ottla.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    stage = DispatcherFixture(monkeypatch)
    stage.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return stage


def serve_prepared(stage: DispatcherFixture, line: ClientStream, prepared: Any) -> None:
    """Serve a connection whose requests were prepared for."""

    async def run() -> None:
        connection = stage.connection(line)
        assert connection._peer.prepares_requests == (stage.dispatcher.observer is None)
        if connection._peer.prepares_requests:
            connection._peer.prepared_request = prepared
        await connection.serve()

    in_virtual_time(run)


class PreparedOddRequests:
    """Serves the requests with odd correlation ids, and leaves the others to the handler."""

    def respond(self, view: memoryview, begin: int, end: int) -> list[Any] | None:
        assert end - begin == len(beat(0)) - 4
        number = int.from_bytes(view[begin + 4 : begin + 8], "big")
        return encode_response(BEAT, 0, number, HeartbeatResponse()) if number % 2 else None


@pytest.mark.parametrize("observed", [False, True])
def test_prepared_requests_are_answered_in_order_with_the_others(stage: DispatcherFixture, observed: bool) -> None:
    handled: list[int] = []
    stage.serve(BEAT, lambda context, request: handled.append(1) or HeartbeatResponse())
    if observed:
        stage.dispatcher.observer = SimpleNamespace(
            **dict.fromkeys(("received", "completed", "answered"), lambda *told: None)
        )
    line = ClientStream()
    line.send_bytes(b"".join(beat(n) for n in range(20)))
    line.disconnect()
    serve_prepared(stage, line, PreparedOddRequests())
    assert numbers(line) == list(range(20))
    assert len(line.sends) == 1
    assert len(handled) == (20 if observed else 10), "an observer is told of each request"


def test_a_prepared_response_of_256_kib_leaves_at_once(stage: DispatcherFixture) -> None:
    seen: list[int] = []

    def respond(view: memoryview, begin: int, end: int) -> list[Any]:
        seen.append(len(line.sends))
        return [struct.pack(">ii", 4 + (1 << 18), 1), bytes(1 << 18)]

    line = ClientStream()
    line.send_bytes(beat(1) + beat(3))
    line.disconnect()
    serve_prepared(stage, line, SimpleNamespace(respond=respond))
    assert seen == [0, 1]


@pytest.mark.parametrize("waits", [True, False])
def test_a_receive_that_waits_begins_a_new_slice(stage: DispatcherFixture, waits: bool) -> None:
    used_up: list[bool] = []
    line = ClientStream()
    line.most_bytes = len(beat(1))

    async def run() -> None:
        connection = stage.connection(line)

        def handler(context: Any, request: Any) -> Any:
            stage.env.work(6.0)
            used_up.append(connection._time_slice.is_used_up())
            return HeartbeatResponse()

        stage.serve(BEAT, handler)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                line.send_bytes(beat(number))
                if waits and number == 0:
                    nursery.start_soon(connection.serve)
                if waits:
                    await trio.sleep(1)
            line.disconnect()
            if not waits:
                await connection.serve()

    in_virtual_time(run)
    assert used_up == ([False] * 3 if waits else [False, True, True])
