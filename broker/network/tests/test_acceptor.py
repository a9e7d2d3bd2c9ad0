"""Peers, dispatcher, acceptor and request observer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.tests.test_secure_connection import listener_security
from ottla.broker.observability.request_observers import ALL_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import ANONYMOUS, Peer
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, FakeListener, frame, in_virtual_time
from ottla.wire.api_keys import ApiKey, request_spec
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import RequestFrame, parse_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest

BEAT = ApiKey.HEARTBEAT


def request(version: int = 0, key: ApiKey = BEAT) -> RequestFrame:
    raw = frame(BEAT, max(0, min(version, 4)), 7, HeartbeatRequest("g", 5, "m"))
    return parse_request(memoryview(raw)[4:])._replace(key=key, version=version)


# ---------------------------------------------------------------- Peer


def test_peer_close_callbacks_are_called_once_and_in_order() -> None:
    peer = Peer("h", ("a", 1), "INSIDE")
    reported: list[int] = []
    for number in range(3):
        peer.on_close(lambda number=number: reported.append(number))  # type: ignore[misc]
    cancel = peer.on_close(lambda: reported.append(99))
    assert (peer.listener, peer.principal, peer.is_disconnected) == ("INSIDE", ANONYMOUS, False)
    cancel()
    cancel()
    peer.mark_disconnected()
    peer.mark_disconnected()
    assert (reported, peer.is_disconnected) == ([0, 1, 2], True)


def test_peer_on_close_after_disconnect_calls_at_once() -> None:
    peer = Peer("h", ("a", 1))
    peer.mark_disconnected()
    reported: list[int] = []
    peer.on_close(lambda: reported.append(1))()
    peer.mark_disconnected()
    assert reported == [1]


def test_peer_close_callback_may_cancel_a_later_one() -> None:
    peer = Peer("h", ("a", 1))
    reported: list[int] = []
    cancels: list[Any] = []
    peer.on_close(lambda: [cancel() for cancel in cancels] and None)
    cancels.append(peer.on_close(lambda: reported.append(1)))
    peer.mark_disconnected()
    assert reported == []


# ---------------------------------------------------------------- Dispatcher


@pytest.mark.parametrize(
    ("low", "high", "oldest", "version", "refused"),
    [
        (1, 3, None, 0, True),
        (1, 3, None, 1, False),
        (1, 3, None, 3, False),
        (1, 3, None, 4, True),
        (1, 3, 2, 1, True),
        (1, 3, 2, 2, False),
        (0, 3, 1, 0, True),
    ],
)
def test_dispatcher_refuses_versions_outside_the_served_range(
    monkeypatch: pytest.MonkeyPatch, low: int, high: int, oldest: int | None, version: int, *, refused: bool
) -> None:
    fixture = DispatcherFixture(monkeypatch)

    async def run() -> None:
        fixture.serve(BEAT, lambda context, body: (context, body), low, high, oldest_supported=oldest)
        if refused:
            with pytest.raises(
                WireError, match=f"HEARTBEAT with version {version} which is not enabled .supported: {low} to {high}"
            ):
                fixture.dispatcher.handle_request(Peer("h", ("a", 1)), request(version))
            return
        context, body = fixture.dispatcher.handle_request(Peer("h", ("a", 1)), request(version))  # type: ignore[misc]
        assert (context.version, context.client_id, context.key) == (version, "me", BEAT)
        assert context.apis is fixture.apis
        assert (body.group_id, body.generation_id) == ("g", 5)

    in_virtual_time(run)


def test_dispatcher_refuses_api_not_served_at_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = DispatcherFixture(monkeypatch)

    async def run() -> None:
        with pytest.raises(WireError, match="api key HEARTBEAT which is not enabled"):
            fixture.dispatcher.handle_request(Peer("h", ("a", 1)), request())

    in_virtual_time(run)


@pytest.mark.behaviour("P-1")
@pytest.mark.parametrize(("version", "answered"), [(0, 0), (4, 4), (5, 0), (-1, 0), (99, 0)])
def test_api_versions_with_unknown_version_is_answered_in_v0(version: int, answered: int) -> None:
    raw = bytearray(frame(ApiKey.API_VERSIONS, 0, 7, ApiVersionsRequest()))
    raw[6:8] = version.to_bytes(2, "big", signed=True)
    assert parse_request(memoryview(raw + bytes(4))[4:]).response_version == answered


def test_served_api_versions_are_within_schema_versions() -> None:
    for key, route in BROKER_APIS.items():
        versions = request_spec(key).versions
        oldest = route.min_version if route.oldest_supported is None else route.oldest_supported
        assert versions.low <= oldest <= route.max_version <= versions.high, key
        assert "broker" in request_spec(key).listeners, key


def test_apis_that_retain_their_buffer_are_those_of_members() -> None:
    kept = {key for key, route in BROKER_APIS.items() if route.retains_buffer}
    assert kept == {
        *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT),
        *(ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT),
        *(ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    }


def test_peer_software_name_is_unknown_at_first() -> None:
    peer = Peer("h", ("a", 1))
    assert (peer.software_name, peer.software_version, peer.principal) == ("unknown", "unknown", ANONYMOUS)


# ---------------------------------------------------------------- Acceptor


@pytest.mark.parametrize(
    ("limit_ms", "gone_s"),
    [("100", 0.15), ("600", 0.75), ("1000", 1.25), ("40000", 50), ("60000", 70), ("3600000", 3610)],
)
def test_idle_connection_is_closed_within_check_interval(
    monkeypatch: pytest.MonkeyPatch, limit_ms: str, gone_s: float
) -> None:
    fixture = DispatcherFixture(monkeypatch, **{"connections.max.idle.ms": limit_ms})
    at: list[float] = []

    class Silent(ClientStream):
        def close(self) -> None:
            if not at:
                at.append(trio.current_time())
            super().close()

    async def run() -> None:
        listener, acceptor = FakeListener(), Acceptor(fixture.dispatcher)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, listener)
            await listener.send.send(Silent())
            await trio.sleep(gone_s + 1)
            nursery.cancel_scope.cancel()
        assert at == [pytest.approx(gone_s)]

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_negative_max_idle_ms_closes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Selector.NO_IDLE_TIMEOUT_MS`` (4.3.1)."""
    fixture = DispatcherFixture(monkeypatch, **{"connections.max.idle.ms": "-1"})

    async def run() -> None:
        listener, acceptor, silent = FakeListener(), Acceptor(fixture.dispatcher), ClientStream()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, listener)
            await listener.send.send(silent)
            await trio.sleep(3000)
            assert not silent.is_closed
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


def test_unauthenticated_connection_is_closed_without_idle_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = DispatcherFixture(monkeypatch, **{"connections.max.idle.ms": "-1"})

    async def run() -> None:
        listener, acceptor, silent = FakeListener(), Acceptor(fixture.dispatcher, listener_security()), ClientStream()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, listener)
            await listener.send.send(silent)
            await trio.sleep(29)
            assert not silent.is_closed
            await trio.sleep(12)
            assert silent.is_closed
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


def test_served_connections_run_between_accepted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture, newcomers = DispatcherFixture(monkeypatch), [ClientStream() for _ in range(200)]

    class ManyClientsListener:
        async def accept(self) -> ClientStream:
            if not newcomers:
                await trio.sleep_forever()
            return newcomers.pop()

    async def run() -> None:
        acceptor = Acceptor(fixture.dispatcher)
        seen = [0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, ManyClientsListener())
            while seen[-1] < 200:
                await trio.lowlevel.checkpoint()
                seen.append(len(acceptor))
            nursery.cancel_scope.cancel()
        # The order of tasks within a round is random: two rounds may lie between two observations.
        assert max(after - before for before, after in pairwise(seen)) <= 16

    in_virtual_time(run)


# ---------------------------------------------------------------- Observer


def test_observer_receives_every_request_and_response(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, ApiKey, int, int]] = []

    class RecordingObserver:
        needs_messages_of = ALL_APIS

        def received(self, peer: Peer, request: RequestFrame) -> None:
            events.append(("received", request.key, request.correlation_id, len(request.frame)))

        def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
            events.append(("completed", request.key, request.correlation_id, 0))

        def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
            assert sum(len(chunk) for chunk in chunks) == size_bytes
            events.append(("answered", request.key, request.correlation_id, size_bytes))

        def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
            raise AssertionError

    fixture = DispatcherFixture(monkeypatch)
    fixture.dispatcher.observer = RecordingObserver()
    fixture.serve(BEAT, lambda context, body: HeartbeatResponse())
    fixture.serve(ApiKey.PRODUCE, lambda context, body: None)
    line = ClientStream()
    raws = [frame(BEAT, 0, 1, HeartbeatRequest()), frame(ApiKey.PRODUCE, 3, 2, ProduceRequest(None, 0))]
    line.send_bytes(b"".join(raws) + frame(ApiKey.METADATA, 12, 3, MetadataRequest()))

    async def run() -> None:
        await fixture.connection(line).serve()

    in_virtual_time(run)
    answered = "answered", BEAT, 1, len(line.received)
    assert events[:3] == [("received", BEAT, 1, len(raws[0]) - 4), ("completed", BEAT, 1, 0), answered]
    assert events[3] == ("received", ApiKey.PRODUCE, 2, len(raws[1]) - 4), "acks=0 is not answered"
    assert [(name, number) for name, _, number, _ in events[4:]] == [("received", 3)], "what is refused was received"


@pytest.mark.behaviour("P-7")
@pytest.mark.parametrize(("limit_ms", "gone_after_s"), [("1000", 1.5), ("600", 1.0), ("60000", 75.1)])
def test_idle_connections_are_closed_and_active_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, limit_ms: str, gone_after_s: float
) -> None:
    fixture = DispatcherFixture(monkeypatch, **{"connections.max.idle.ms": limit_ms})
    fixture.serve(BEAT, lambda context, body: HeartbeatResponse())

    async def run() -> None:
        listener, acceptor = FakeListener(), Acceptor(fixture.dispatcher)
        silent, talking, deaf = ClientStream(), ClientStream(), ClientStream(reads=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, listener)
            for line in (silent, talking, deaf):
                await listener.send.send(line)
            deaf.send_bytes(frame(BEAT, 0, 1, HeartbeatRequest()))
            until = trio.current_time() + 3 * gone_after_s
            while trio.current_time() < until:
                talking.send_bytes(frame(BEAT, 0, 1, HeartbeatRequest()))
                await trio.sleep(int(limit_ms) / 4000)
                if trio.current_time() < int(limit_ms) / 1000:
                    assert not silent.is_closed
                elif trio.current_time() > gone_after_s:
                    assert silent.is_closed
            assert deaf.is_closed, "who never reads its answers is silent too"
            assert not talking.is_closed
            assert len(acceptor) == 1
            nursery.cancel_scope.cancel()
        assert talking.is_closed

    in_virtual_time(run)


class PendingConnections:
    """Listener with a number of pending connections."""

    def __init__(self, many: int) -> None:
        self.left = many
        self.came = 0

    async def accept(self) -> Any:
        if not self.left:
            await trio.sleep_forever()
        self.left -= 1
        self.came += 1
        return object()


class IdleDispatcher(Acceptor):
    """Dispatcher that serves no request."""

    def _create_connection(self, stream: Any) -> Any:
        return stream

    async def _serve(self, connection: Any) -> None:
        """Serve no request."""

    async def _close_idle_connections(self) -> None:
        """Close no connection."""


def test_acceptor_yields_while_many_clients_connect() -> None:
    listener, seen = PendingConnections(1_000), [1_000]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(IdleDispatcher(SimpleNamespace()).run, listener)  # type: ignore[arg-type]
            while listener.left:
                await trio.lowlevel.checkpoint()
                seen.append(listener.left)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert max(before - after for before, after in pairwise(seen)) <= 128


def test_cancellation_while_many_clients_connect_loses_no_connection() -> None:
    listener = PendingConnections(1_000)
    acceptor = IdleDispatcher(SimpleNamespace())  # type: ignore[arg-type]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.cancel()
            nursery.start_soon(acceptor.run, listener)

    trio.run(main)
    assert listener.came == len(acceptor)
