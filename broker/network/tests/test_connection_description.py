"""Descriptions of connections: requests in flight, rest of a delay, and last error."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.network.tests.test_connection import BEAT, beat
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    return DispatcherFixture(monkeypatch)


def test_description_counts_requests_without_a_response(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    seen: list[int] = []

    async def run() -> None:
        connection = fixture.connection(stream)

        def handler(context: Any, request: Any) -> HeartbeatResponse:
            seen.append(connection.describe(fixture.env.monotonic_ms()).in_flight)
            return HeartbeatResponse()

        fixture.serve(BEAT, handler)
        stream.send_bytes(beat(1) + beat(2) + beat(3)[:-1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            await trio.sleep(1)
            seen.append(connection.describe(fixture.env.monotonic_ms()).in_flight)
            stream.disconnect()

    in_virtual_time(run)
    assert seen == [2, 1, 0]


def test_connection_without_a_request_so_far_has_none_in_flight(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        assert fixture.connection(ClientStream()).describe(fixture.env.monotonic_ms()).in_flight == 0

    in_virtual_time(run)


def test_description_of_a_muted_connection_has_the_rest_of_its_delay(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    def handler(context: Any, request: Any) -> HeartbeatResponse:
        context.peer.throttle_ms = 5000
        return HeartbeatResponse()

    async def run() -> None:
        fixture.serve(BEAT, handler)
        connection = fixture.connection(stream)
        stream.send_bytes(beat(1) + beat(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            await trio.sleep(2)
            found = connection.describe(fixture.env.monotonic_ms())
            assert (found.muted_ms, found.throttled_ms, found.in_flight) == (3000, 5000, 1)
            await trio.sleep(20)
            assert connection.describe(fixture.env.monotonic_ms()).muted_ms == 0
            stream.disconnect()

    in_virtual_time(run)


def test_description_names_the_last_error(fixture: DispatcherFixture) -> None:
    fixture.dispatcher.observer = RequestMetrics(fixture.env.monotonic_ms)
    stream = ClientStream()

    async def run() -> None:
        connection = fixture.connection(stream)
        assert connection.describe(0).last_error == ""
        stream.send_bytes(beat(1))
        stream.disconnect()
        await connection.serve()
        found = connection.describe(fixture.env.monotonic_ms() + 4000)
        assert (found.last_error, found.last_error_age_ms) == ("Heartbeat: CORRUPT_MESSAGE", 4000)

    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(0, 2))
    in_virtual_time(run)
