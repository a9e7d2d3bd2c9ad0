"""Clients that disconnect while a request waits, and idle clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.dispatch.dispatcher import ResponseJob
from ottla.broker.network.tests.test_connection import BEAT, beat, served
from ottla.broker.requests.peer import Peer, PeerDisconnectedError, wait_while_connected
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time, job_of
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.produce import ProduceRequest


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return fixture


# ---------------------------------------------------------------- leaving


class BlockingHandler:
    """Handler that waits until it is released, or while its client is connected."""

    def __init__(self, *, ends_on_disconnect: bool) -> None:
        self.go_on = trio.Event()
        self.outcome = "not asked"
        self._ends_on_disconnect = ends_on_disconnect

    def handle(self, context: Any, request: Any) -> ResponseJob:
        self.outcome = "waiting"
        wait = self.go_on.wait()
        try:
            yield wait_while_connected(context.peer, wait) if self._ends_on_disconnect else wait
        except PeerDisconnectedError:
            self.outcome = "ended by disconnect"
            raise
        except trio.Cancelled:
            self.outcome = "cancelled"
            raise
        self.outcome = "answered"
        return JoinGroupResponse()


def serve_blocking(
    fixture: DispatcherFixture, stream: ClientStream, raw: bytes, *, ends_on_disconnect: bool = True
) -> BlockingHandler:
    """Serve a request that waits, and disconnect its client."""
    handler = BlockingHandler(ends_on_disconnect=ends_on_disconnect)
    fixture.serve(ApiKey.JOIN_GROUP, handler.handle)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            connection = fixture.connection(stream)
            nursery.start_soon(connection.serve)
            stream.send_bytes(raw)
            await trio.testing.wait_all_tasks_blocked()
            assert handler.outcome == "waiting"
            stream.disconnect()
            await trio.testing.wait_all_tasks_blocked()
            handler.go_on.set()

    in_virtual_time(run)
    return handler


def test_wait_ends_without_response_when_its_client_disconnects(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest())
    assert serve_blocking(fixture, stream, raw).outcome == "ended by disconnect"
    assert stream.is_closed
    assert stream.received == b""


def test_requests_behind_a_wait_ended_by_disconnect_are_handled(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    seen: list[int] = []
    fixture.serve(ApiKey.PRODUCE, lambda context, request: seen.append(request.timeout_ms))
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest()) + frame(ApiKey.PRODUCE, 3, 2, ProduceRequest(None, 0, 77))
    serve_blocking(fixture, stream, raw)
    assert seen == [77]


def test_both_waits_of_a_disconnected_client_end(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    raw = b"".join(frame(ApiKey.JOIN_GROUP, 0, n, JoinGroupRequest()) for n in (1, 2))
    assert serve_blocking(fixture, stream, raw).outcome == "ended by disconnect"


class BrokenStream(ClientStream):
    """A client that has disconnected without reading its responses."""

    async def send(self, chunks: Sequence[Any]) -> None:
        await trio.lowlevel.checkpoint()
        raise BrokenPipeError


@pytest.mark.parametrize(("ends_on_disconnect", "outcome"), [(True, "ended by disconnect"), (False, "answered")])
def test_waiting_request_ends_when_earlier_responses_cannot_be_sent(
    fixture: DispatcherFixture, outcome: str, *, ends_on_disconnect: bool
) -> None:
    """A started job is not dropped: its wait for the client ends, and the rest runs to its end."""
    stream, reported = BrokenStream(), list[str]()
    handler = BlockingHandler(ends_on_disconnect=ends_on_disconnect)

    def handle(context: Any, request: Any) -> ResponseJob:
        unsubscribe = context.peer.on_close(lambda: reported.append("disconnected"))
        try:
            return (yield from handler.handle(context, request))
        finally:
            unsubscribe()

    fixture.serve(ApiKey.JOIN_GROUP, handle)
    stream.send_bytes(beat(1) + frame(ApiKey.JOIN_GROUP, 0, 2, JoinGroupRequest()))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.connection(stream).serve)
            await trio.testing.wait_all_tasks_blocked()
            handler.go_on.set()

    in_virtual_time(run)
    assert (handler.outcome, reported) == (outcome, ["disconnected"])
    assert stream.is_closed


def test_handler_without_wait_for_its_client_is_not_cancelled(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest())
    assert serve_blocking(fixture, stream, raw, ends_on_disconnect=False).outcome == "answered"


def test_wait_of_a_disconnected_client_ends_at_once(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        peer = Peer("h", ("a", 1))
        peer.mark_disconnected()
        with pytest.raises(PeerDisconnectedError):
            await wait_while_connected(peer, fixture.env.sleep(5))
        assert trio.current_time() == 0

    in_virtual_time(run)


def test_wait_that_has_ended_is_not_subscribed_to_its_peer(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        peer, watches = Peer("h", ("a", 1)), list[Any]()
        peer.watch_disconnect = watches.append
        for _ in range(3):
            await wait_while_connected(peer, fixture.env.sleep(1))
        assert not peer._callbacks
        assert watches == [peer.mark_disconnected], "the stream is watched once"

    in_virtual_time(run)


def test_close_callbacks_run_on_disconnect_unless_cancelled(fixture: DispatcherFixture) -> None:
    reported: list[str] = []

    def handler(context: Any, request: Any) -> Any:
        context.peer.on_close(lambda: reported.append("first"))
        context.peer.on_close(lambda: reported.append("taken back"))()
        context.peer.on_close(lambda: reported.append("second"))
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1))
    stream.disconnect()
    served(fixture, stream)
    assert reported == ["first", "second"]


@pytest.mark.parametrize("error", [KeyError("k"), AssertionError("an invariant")])
def test_disconnect_callback_exception_is_contained_except_assertion_error(
    fixture: DispatcherFixture, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []

    def fail() -> None:
        raise error

    def handler(context: Any, request: Any) -> Any:
        context.peer.on_close(fail)
        context.peer.on_close(lambda: reported.append("second"))
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1))
    stream.disconnect()
    if isinstance(error, AssertionError):
        with pytest.raises(AssertionError, match="an invariant"):
            served(fixture, stream)
    else:
        served(fixture, stream)
        assert [record.message for record in caplog.records] == [
            f"Disconnect callback failed: connection from {stream.peer}"
        ]
    assert reported == ["second"], "the others are called all the same"


def test_stopping_node_cancels_parked_request_and_closes_connection(fixture: DispatcherFixture) -> None:
    parked = BlockingHandler(ends_on_disconnect=False)
    fixture.serve(ApiKey.FETCH, parked.handle)
    stream = ClientStream()
    stream.send_bytes(frame(ApiKey.FETCH, 4, 1, FetchRequest()))

    async def run() -> None:
        with trio.move_on_after(1):
            await fixture.connection(stream).serve()

    in_virtual_time(run)
    assert parked.outcome == "cancelled"
    assert stream.is_closed


# ---------------------------------------------------------------- silence


def idle(fixture: DispatcherFixture, stream: ClientStream, after_s: float) -> float:
    """Return the idle time of a connection at a time after it was accepted."""
    found = -1.0

    async def run() -> None:
        nonlocal found
        async with trio.open_nursery() as nursery:
            connection = fixture.connection(stream)
            nursery.start_soon(connection.serve)
            await trio.sleep(after_s)
            found = connection.idle_ms(fixture.env.monotonic_ms())
            stream.disconnect()
            stream.close()

    in_virtual_time(run)
    return found


def test_client_without_requests_is_idle(fixture: DispatcherFixture) -> None:
    assert idle(fixture, ClientStream(), 5) == pytest.approx(5000)


def test_client_with_request_in_progress_is_not_idle(fixture: DispatcherFixture) -> None:
    async def slow() -> HeartbeatResponse:
        await trio.sleep(100)
        return HeartbeatResponse()

    fixture.serve(BEAT, lambda context, request: job_of(slow()))
    stream = ClientStream()
    stream.send_bytes(beat(1))
    assert idle(fixture, stream, 5) == 0


def test_client_that_does_not_read_its_response_is_idle(fixture: DispatcherFixture) -> None:
    stream = ClientStream(reads=False)
    stream.send_bytes(beat(1))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            connection = fixture.connection(stream)
            nursery.start_soon(connection.serve)
            await trio.sleep(5)
            now = fixture.env.monotonic_ms
            assert connection.idle_ms(now()) == 0, "it has just begun to wait"
            await trio.sleep(5)
            assert connection.idle_ms(now()) == pytest.approx(5000)
            stream.read_more()
            await trio.testing.wait_all_tasks_blocked()
            assert connection.idle_ms(now()) == 0, "it reads, however slowly"
            connection.close()

    in_virtual_time(run)
    assert stream.is_closed
