"""Connections before authentication: their idle time, and the order in which they are closed."""

from __future__ import annotations

import pytest
import trio

from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_connection import BEAT, beat
from ottla.broker.network.tests.test_secure_connection import listener_security, login
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    return DispatcherFixture(monkeypatch)


def test_idle_ms_during_tls_handshake_counts_from_accept(fixture: DispatcherFixture) -> None:
    class StalledHandshakeStream(ClientStream):
        async def handshake(self) -> str | None:
            await trio.sleep_forever()

    async def run() -> None:
        connection = SecureConnection(fixture.dispatcher, StalledHandshakeStream(), listener_security("SSL"))
        now_ms = fixture.dispatcher.services.env.monotonic_ms
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            await trio.sleep(5)
            assert connection.idle_ms(now_ms()) == pytest.approx(5_000)
            assert not connection.is_authenticated
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


def test_is_authenticated_is_true_only_after_authentication(fixture: DispatcherFixture) -> None:
    stream, seen = ClientStream(), []

    async def run() -> None:
        connection = SecureConnection(fixture.dispatcher, stream, listener_security())

        def answer(*_: object) -> HeartbeatResponse:
            seen.append(connection.is_authenticated)
            return HeartbeatResponse(error_code=7)

        fixture.serve(BEAT, answer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            stream.send_bytes(login()[:30])
            await trio.sleep(1)
            seen.append(connection.is_authenticated)
            stream.send_bytes(login()[30:] + beat(3))
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert seen == [False, True]
