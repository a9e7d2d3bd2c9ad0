"""Prepared requests, and time slices of consecutive requests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.tests.test_connection import BEAT, beat, numbers
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.observability.request_observers import ALL_APIS, NO_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import CloseConnection, Peer
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame, encode_response
from ottla.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return fixture


def serve_prepared(fixture: DispatcherFixture, stream: ClientStream, prepared: Any) -> None:
    """Serve a connection with a prepared request."""

    async def run() -> None:
        connection = fixture.connection(stream)
        observer = fixture.dispatcher.observer
        assert connection._peer.observed_apis == (NO_APIS if observer is None else observer.needs_messages_of)
        if not connection._peer.observed_apis:
            connection._peer.prepared_request = prepared
        await connection.serve()

    in_virtual_time(run)


class PreparedOddRequests:
    """Responds to requests with odd correlation ids, and leaves the others to the handler."""

    key = BEAT

    def respond(self, view: memoryview, begin: int, end: int) -> list[Any] | None:
        assert end - begin == len(beat(0)) - 4
        number = int.from_bytes(view[begin + 4 : begin + 8], "big")
        return encode_response(BEAT, 0, number, HeartbeatResponse()) if number % 2 else None


class CountingObserver:
    """Counts the requests that it observes as messages, and the prepared ones with their bytes."""

    def __init__(self, needs_messages_of: frozenset[ApiKey]) -> None:
        self.needs_messages_of = needs_messages_of
        self.messages: list[int] = []
        self.prepared: list[tuple[ApiKey, int, int, int]] = []

    def received(self, peer: Peer, request: RequestFrame) -> None:
        self.messages.append(request.correlation_id)

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        pass

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Any], size_bytes: int) -> None:
        pass

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        self.prepared.append(counts[:4])


def test_observer_without_messages_counts_prepared_requests(fixture: DispatcherFixture) -> None:
    observer = fixture.dispatcher.observer = CountingObserver(NO_APIS)
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(20)))
    stream.disconnect()
    serve_prepared(fixture, stream, PreparedOddRequests())
    assert numbers(stream) == list(range(20))
    assert observer.messages == list(range(0, 20, 2))
    size_bytes = sum(len(chunk) for chunk in encode_response(BEAT, 0, 1, HeartbeatResponse()))
    assert observer.prepared == [(BEAT, 1, len(beat(1)), size_bytes)] * 10


def test_prepared_requests_that_were_received_together_are_counted_together(fixture: DispatcherFixture) -> None:
    observer = fixture.dispatcher.observer = CountingObserver(NO_APIS)
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(1, 21, 2)))
    stream.disconnect()
    serve_prepared(fixture, stream, PreparedOddRequests())
    size_bytes = sum(len(chunk) for chunk in encode_response(BEAT, 0, 1, HeartbeatResponse()))
    assert observer.prepared == [(BEAT, 10, 10 * len(beat(1)), 10 * size_bytes)]


def test_acceptor_lets_open_connections_report_their_prepared_requests(fixture: DispatcherFixture) -> None:
    observer = fixture.dispatcher.observer = CountingObserver(NO_APIS)

    async def run() -> None:
        stream, acceptor = ClientStream(), Acceptor(fixture.dispatcher)
        connection = fixture.connection(stream)
        connection._peer.prepared_request = PreparedOddRequests()
        acceptor._connections.add(connection)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            stream.send_bytes(beat(1) + beat(3))
            await trio.sleep(1)
            assert observer.prepared == []
            for _ in acceptor.report_prepared():
                pass
            assert [count for _, count, _, _ in observer.prepared] == [2]
            stream.disconnect()

    in_virtual_time(run)
    assert [count for _, count, _, _ in observer.prepared] == [2]


@pytest.mark.parametrize("adds", [True, False])
def test_prepared_requests_after_a_change_of_the_observers_are_counted(fixture: DispatcherFixture, adds: bool) -> None:
    own = fixture.dispatcher.observer = CountingObserver(NO_APIS)
    other = CountingObserver(NO_APIS)

    async def run() -> None:
        stream = ClientStream()
        connection = fixture.connection(stream)
        stop = connection.observe(other) if not adds else None
        connection._peer.prepared_request = PreparedOddRequests()

        def handler(context: Any, request: Any) -> Any:
            if stop is None:
                connection.observe(other)
            else:
                stop()
            return HeartbeatResponse()

        fixture.serve(BEAT, handler)
        stream.send_bytes(beat(1) + beat(2) + beat(3) + beat(5))
        stream.disconnect()
        await connection.serve()

    in_virtual_time(run)
    assert [count for _, count, _, _ in own.prepared] == [1, 2]
    assert [count for _, count, _, _ in other.prepared] == [2 if adds else 1]


def test_disconnect_callbacks_are_called_if_the_last_report_fails(fixture: DispatcherFixture) -> None:
    class FailingObserver(CountingObserver):
        def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
            raise AssertionError

    async def run() -> None:
        stream = ClientStream()
        connection = fixture.connection(stream)
        connection._peer.prepared_request = PreparedOddRequests()
        connection._peer.on_close(lambda: closed.append(True))
        stream.send_bytes(beat(1))
        stream.disconnect()
        with pytest.raises(AssertionError):
            await connection.serve()

    closed: list[bool] = []
    fixture.dispatcher.observer = FailingObserver(NO_APIS)
    in_virtual_time(run)
    assert closed


def close_connection(context: Any, request: Any) -> Any:
    raise CloseConnection


@pytest.mark.parametrize("last", [beat(2), b"\xff\xff\xff\xff"], ids=["closed by handler", "malformed size"])
def test_prepared_requests_before_the_end_of_a_connection_are_counted(fixture: DispatcherFixture, last: bytes) -> None:
    observer = fixture.dispatcher.observer = CountingObserver(NO_APIS)
    fixture.serve(BEAT, close_connection)
    stream = ClientStream()
    stream.send_bytes(beat(1) + beat(3) + last)
    serve_prepared(fixture, stream, PreparedOddRequests())
    assert numbers(stream) == [1, 3]
    assert [count for _, count, _, _ in observer.prepared] == [2]


def test_latency_of_prepared_requests_ends_before_their_responses_are_sent(fixture: DispatcherFixture) -> None:
    class SlowClient(ClientStream):
        async def send(self, chunks: Sequence[Any]) -> None:
            await fixture.env.sleep(5)
            await super().send(chunks)

    def respond(view: memoryview, begin: int, end: int) -> list[Any]:
        return [struct.pack(">ii", 4 + (1 << 18), 1), bytes(1 << 18)]

    metrics = fixture.dispatcher.observer = RequestMetrics(fixture.env.monotonic_ms)
    stream = SlowClient()
    stream.send_bytes(beat(1))
    stream.disconnect()
    serve_prepared(fixture, stream, SimpleNamespace(key=BEAT, respond=respond))
    (found,) = metrics
    assert found.responses == found.times[0] == 1


def test_connection_prepares_no_requests_while_observer_needs_messages(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        connection = fixture.connection(ClientStream())
        peer, prepared = connection._peer, PreparedOddRequests()
        peer.prepared_request, peer.request_repetitions = prepared, ("like", 3)
        observer = CountingObserver(ALL_APIS)
        stop = connection.observe(observer)
        assert peer.observed_apis == ALL_APIS
        assert peer.prepared_request is None
        assert peer.request_repetitions == (None, 0), "requests are prepared again as soon as on a new connection"
        observer.needs_messages_of = NO_APIS
        connection.update_observation()
        assert not peer.observed_apis
        observer.needs_messages_of = ALL_APIS
        connection.update_observation()
        stop()
        assert not peer.observed_apis
        assert peer.prepares_requests

    in_virtual_time(run)


def test_observer_of_another_api_leaves_the_prepared_request(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        connection = fixture.connection(ClientStream())
        prepared = connection._peer.prepared_request = PreparedOddRequests()
        connection.observe(CountingObserver(ALL_APIS - {BEAT}))
        assert connection._peer.prepared_request is prepared
        connection.observe(CountingObserver(frozenset({BEAT})))
        assert connection._peer.prepared_request is None
        assert connection._peer.observed_apis == ALL_APIS

    in_virtual_time(run)


@pytest.mark.parametrize("observed", [False, True])
def test_prepared_responses_are_in_order_with_others(fixture: DispatcherFixture, observed: bool) -> None:
    handled: list[int] = []
    fixture.serve(BEAT, lambda context, request: handled.append(1) or HeartbeatResponse())
    if observed:
        fixture.dispatcher.observer = CountingObserver(ALL_APIS)
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(20)))
    stream.disconnect()
    serve_prepared(fixture, stream, PreparedOddRequests())
    assert numbers(stream) == list(range(20))
    assert len(stream.sends) == 1
    assert len(handled) == (20 if observed else 10), "an observer is told of each request"


def test_prepared_response_of_256_kib_is_sent_at_once(fixture: DispatcherFixture) -> None:
    seen: list[int] = []

    def respond(view: memoryview, begin: int, end: int) -> list[Any]:
        seen.append(len(stream.sends))
        return [struct.pack(">ii", 4 + (1 << 18), 1), bytes(1 << 18)]

    stream = ClientStream()
    stream.send_bytes(beat(1) + beat(3))
    stream.disconnect()
    serve_prepared(fixture, stream, SimpleNamespace(key=BEAT, respond=respond))
    assert seen == [0, 1]


@pytest.mark.parametrize("waits", [True, False])
def test_receive_that_waits_starts_a_new_time_slice(fixture: DispatcherFixture, waits: bool) -> None:
    used_up: list[bool] = []
    stream = ClientStream()
    stream.most_bytes = len(beat(1))

    async def run() -> None:
        connection = fixture.connection(stream)

        def handler(context: Any, request: Any) -> Any:
            fixture.env.work(6.0)
            used_up.append(connection._time_slice.is_used_up())
            return HeartbeatResponse()

        fixture.serve(BEAT, handler)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                stream.send_bytes(beat(number))
                if waits and number == 0:
                    nursery.start_soon(connection.serve)
                if waits:
                    await trio.sleep(1)
            stream.disconnect()
            if not waits:
                await connection.serve()

    in_virtual_time(run)
    assert used_up == ([False] * 3 if waits else [False, True, True])
