"""Limited sessions of authenticated connections: prepared requests, and reauthentication."""

from __future__ import annotations

import pytest
import trio

from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_connection import BEAT, beat
from ottla.broker.network.tests.test_secure_connection import HANDSHAKE, TOKEN, codes, listener_security, login
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return fixture


@pytest.mark.behaviour("S-317")
@pytest.mark.parametrize("session", [{"connections_max_reauth_ms": "5000"}, {}])
def test_requests_are_prepared_only_in_unlimited_sessions(fixture: DispatcherFixture, session: dict[str, str]) -> None:
    stream = ClientStream()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            connection = SecureConnection(fixture.dispatcher, stream, listener_security(**session))
            nursery.start_soon(connection.serve)
            stream.send_bytes(login())
            await trio.sleep(1)
            assert connection._peer.prepares_requests == (not session)
            stream.disconnect()

    in_virtual_time(run)


@pytest.mark.behaviour("S-317")
def test_reauthentication_extends_the_session(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        security = listener_security(connections_max_reauth_ms="5000")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SecureConnection(fixture.dispatcher, stream, security).serve)
            stream.send_bytes(login())
            await trio.sleep(4)
            stream.send_bytes(login())
            await trio.sleep(4)
            stream.send_bytes(beat(5))
            stream.disconnect()

    in_virtual_time(run)
    assert codes(stream, *[(HANDSHAKE, 1), (TOKEN, 2)] * 2, (BEAT, 0)) == [0, 0, 0, 0, 7]
