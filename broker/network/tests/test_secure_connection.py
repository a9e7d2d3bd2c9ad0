"""Connections with authentication: limits before it, delayed failures, expired sessions."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio

from ottla.broker.config.limits import AUTHENTICATION_TIMEOUT_MS
from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_connection import BEAT, beat
from ottla.broker.requests.peer import ANONYMOUS
from ottla.broker.security.authn.listener_security import ListenerSecurity, build_listener_security
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

JAAS = 'x.PlainLoginModule required user_alice="alice-secret";'
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.in.plain.sasl.jaas.config": JAAS,
}
SHORT = {"connections_max_reauth_ms": "5000"}
HANDSHAKE, TOKEN = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return fixture


def listener_security(protocol: str = "SASL_PLAINTEXT", **more: str) -> ListenerSecurity:
    made = build_listener_security(
        {**SETTINGS, **{k.replace("_", "."): v for k, v in more.items()}}, "IN", protocol, lambda *_: None
    )
    assert made is not None
    return made


def login(password: str = "alice-secret", version: int = 1) -> bytes:
    token = f"\0alice\0{password}".encode()
    if version == 0:
        return frame(HANDSHAKE, 0, 1, SaslHandshakeRequest("PLAIN")) + struct.pack(">i", len(token)) + token
    return frame(HANDSHAKE, 1, 1, SaslHandshakeRequest("PLAIN")) + frame(TOKEN, 2, 2, SaslAuthenticateRequest(token))


def codes(stream: ClientStream, *kinds: tuple[ApiKey, int]) -> list[int]:
    """Return the error codes of the responses, which arrived in this order."""
    raw, out = stream.received, []
    for key, version in kinds:
        (size,) = struct.unpack_from(">i", raw)
        one, raw = raw[: 4 + size], raw[4 + size :]
        single = ClientStream()
        single.sends = [one]
        answer: Any = single.responses(key, version)[0][1]
        out.append(answer.error_code)
    assert raw == b""
    return out


def test_authenticated_client_is_served_with_its_principal(fixture: DispatcherFixture) -> None:
    stream, seen = ClientStream(), []
    fixture.serve(BEAT, lambda context, request: seen.append(context.peer.principal) or HeartbeatResponse(error_code=7))

    async def run() -> None:
        stream.send_bytes(login() + beat(3))
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    assert codes(stream, (HANDSHAKE, 1), (TOKEN, 2), (BEAT, 0)) == [0, 0, 7]
    assert seen == ["User:alice"]


@pytest.mark.behaviour("S-312")
def test_sasl_tokens_after_handshake_v0_are_raw(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(login(version=0) + beat(3))
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    assert stream.received.count(struct.pack(">i", 0)) >= 1, "an empty token is answered by an empty token"
    assert stream.received.endswith(struct.pack(">h", 7))


@pytest.mark.behaviour("S-313")
def test_authentication_failure_is_delayed_and_later_frames_are_not_read(fixture: DispatcherFixture) -> None:
    stream, times = ClientStream(), []

    async def run() -> None:
        stream.send_bytes(login("wrong") + login() + beat(3))
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()
        times.append(trio.current_time())

    in_virtual_time(run)
    assert times == [pytest.approx(0.1)]
    assert stream.is_closed
    assert codes(stream, (HANDSHAKE, 1), (TOKEN, 2)) == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]


@pytest.mark.behaviour("S-313")
def test_failed_authentication_delay_is_configurable(fixture: DispatcherFixture) -> None:
    times = []

    async def run() -> None:
        stream = ClientStream()
        stream.send_bytes(login("wrong"))
        security = listener_security(connection_failed_authentication_delay_ms="3000")
        await SecureConnection(fixture.dispatcher, stream, security).serve()
        times.append(trio.current_time())

    in_virtual_time(run)
    assert times == [pytest.approx(3.0)]


@pytest.mark.behaviour("S-312")
def test_request_before_authentication_closes_without_response(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(beat(1))
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    assert stream.received == b""
    assert stream.is_closed


@pytest.mark.behaviour("S-315")
@pytest.mark.parametrize(("size", "is_read"), [(524_288, True), (524_289, False)])
def test_frame_before_authentication_is_limited_to_512_kib(
    fixture: DispatcherFixture, size: int, is_read: bool
) -> None:
    """CVE-2022-34917: a size announced before authentication allocates no memory."""
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(struct.pack(">i", size) + b"\0" * 8)
        stream.disconnect()
        connection = SecureConnection(fixture.dispatcher, stream, listener_security())
        await connection.serve()

    in_virtual_time(run)
    assert stream.receives == (2 if is_read else 1)


def test_frame_after_authentication_has_normal_limit(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(login())
        stream.send_bytes(struct.pack(">i", 600_000) + beat(3)[4:])
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    assert stream.receives == 2, "the rest of it is waited for"


def test_unauthenticated_connection_is_idle_after_authentication_timeout(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        stream = ClientStream()
        connection = SecureConnection(fixture.dispatcher, stream, listener_security())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            await trio.sleep(AUTHENTICATION_TIMEOUT_MS / 1000 - 1)
            stream.send_bytes(b"\0")  # a byte now and then changes no deadline
            await trio.sleep(2)
            assert connection.idle_ms(fixture.env.monotonic_ms()) == float("inf")
            stream.disconnect()

    in_virtual_time(run)


def test_authenticated_connection_is_idle_as_any_other(fixture: DispatcherFixture) -> None:
    async def run() -> None:
        stream = ClientStream()
        connection = SecureConnection(fixture.dispatcher, stream, listener_security())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            stream.send_bytes(login())
            await trio.sleep(AUTHENTICATION_TIMEOUT_MS / 1000 + 5)
            assert connection.idle_ms(fixture.env.monotonic_ms()) == pytest.approx(AUTHENTICATION_TIMEOUT_MS + 5000)
            stream.disconnect()

    in_virtual_time(run)


@pytest.mark.behaviour("S-317")
def test_expired_session_is_closed_at_its_next_request(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        security = listener_security(connections_max_reauth_ms="5000")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SecureConnection(fixture.dispatcher, stream, security).serve)
            stream.send_bytes(login() + beat(3))
            await trio.sleep(4.9)
            stream.send_bytes(beat(4))
            await trio.sleep(0.2)
            assert not stream.is_closed
            stream.send_bytes(beat(5))

    in_virtual_time(run)
    assert stream.is_closed
    assert codes(stream, (HANDSHAKE, 1), (TOKEN, 2), (BEAT, 0), (BEAT, 0)) == [0, 0, 7, 7]


@pytest.mark.behaviour("S-315")
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("size", "is_read"), [(524_288, True), (524_289, False)])
def test_frame_of_reauthentication_is_limited_to_512_kib(
    fixture: DispatcherFixture, version: int, size: int, *, is_read: bool
) -> None:
    """A client known by then could still send a password of 100 MB."""
    stream = ClientStream()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SecureConnection(fixture.dispatcher, stream, listener_security(**SHORT)).serve)
            stream.send_bytes(login(version=version))
            await trio.sleep(4)
            stream.send_bytes(frame(HANDSHAKE, version, 1, SaslHandshakeRequest("PLAIN")))
            stream.send_bytes(struct.pack(">i", size) + bytes(8))
            await trio.sleep(0.5)
            assert stream.is_closed is not is_read
            stream.disconnect()

    in_virtual_time(run)


def test_frame_after_reauthentication_has_normal_limit(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SecureConnection(fixture.dispatcher, stream, listener_security(**SHORT)).serve)
            for _ in range(3):
                stream.send_bytes(login())
                await trio.sleep(4)
            stream.send_bytes(struct.pack(">i", 600_000) + bytes(8))
            await trio.sleep(0.5)
            assert not stream.is_closed
            stream.disconnect()

    in_virtual_time(run)


class CertificateStream(ClientStream):
    """Client stream with a certificate, or without TLS."""

    def __init__(self, subject: str | None, error: Exception | None = None) -> None:
        super().__init__()
        self._subject, self._error = subject, error

    async def handshake(self) -> str | None:
        if self._error is not None:
            raise self._error
        return self._subject


@pytest.mark.behaviour("S-309")
@pytest.mark.parametrize(
    ("subject", "rules", "principal"),
    [
        (None, "DEFAULT", ANONYMOUS),
        ("CN=alice,O=Here", "DEFAULT", "User:CN=alice,O=Here"),
        ("CN=alice,O=Here", "RULE:^CN=(.*?),.*$/$1/U", "User:ALICE"),
        ("O=Here", "RULE:^CN=(.*?),.*$/$1/", None),
    ],
)
def test_certificate_subject_is_mapped_to_principal(
    fixture: DispatcherFixture, subject: str | None, rules: str, principal: str | None
) -> None:
    stream, seen = CertificateStream(subject), []
    fixture.serve(BEAT, lambda context, request: seen.append(context.peer.principal) or HeartbeatResponse())

    async def run() -> None:
        stream.send_bytes(beat(1))
        stream.disconnect()
        security = listener_security("SSL", ssl_principal_mapping_rules=rules)
        await SecureConnection(fixture.dispatcher, stream, security).serve()

    in_virtual_time(run)
    assert seen == ([] if principal is None else [principal])
    assert stream.is_closed


@pytest.mark.behaviour("S-309")
def test_sasl_principal_overrides_certificate_subject(fixture: DispatcherFixture) -> None:
    stream, seen = CertificateStream("CN=somebody"), []
    fixture.serve(BEAT, lambda context, request: seen.append(context.peer.principal) or HeartbeatResponse())

    async def run() -> None:
        stream.send_bytes(login() + beat(3))
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, listener_security("SASL_SSL")).serve()

    in_virtual_time(run)
    assert seen == ["User:alice"]


def test_client_without_tls_is_closed_without_response(fixture: DispatcherFixture) -> None:
    stream = CertificateStream(None, OSError("no TLS"))

    async def run() -> None:
        stream.send_bytes(beat(1))
        await SecureConnection(fixture.dispatcher, stream, listener_security("SSL")).serve()

    in_virtual_time(run)
    assert stream.is_closed
    assert stream.received == b""


def test_handshake_exception_closes_only_its_connection_and_is_logged(
    fixture: DispatcherFixture, caplog: pytest.LogCaptureFixture
) -> None:
    stream = CertificateStream(None, UnicodeDecodeError("utf-8", b"\xfc", 0, 1, "invalid start byte"))

    async def run() -> None:
        await SecureConnection(fixture.dispatcher, stream, listener_security("SSL")).serve()

    in_virtual_time(run)
    assert stream.is_closed
    assert "closed: unexpected error in the handshake" in caplog.text
    assert "invalid start byte" in caplog.text


def test_handshake_assertion_error_is_raised(fixture: DispatcherFixture) -> None:
    stream = CertificateStream(None, AssertionError())

    async def run() -> None:
        with pytest.raises(AssertionError):
            await SecureConnection(fixture.dispatcher, stream, listener_security("SSL")).serve()

    in_virtual_time(run)
    assert stream.is_closed


def test_memory_of_unauthenticated_connections_is_limited_together(fixture: DispatcherFixture) -> None:
    """CVE-2022-34917.

    A thousand clients, each with most of a frame of half a mebibyte; one that authenticates succeeds all the same.
    """
    security, streams, late, gone = (
        listener_security(),
        [ClientStream() for _ in range(300)],
        ClientStream(),
        ClientStream(),
    )

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for stream in streams:
                stream.send_bytes(struct.pack(">i", 500_000) + bytes(400_000))
                nursery.start_soon(SecureConnection(fixture.dispatcher, stream, security).serve)
            await trio.sleep(1)
            assert sum(not stream.is_closed for stream in streams) in range(16, 65)
            late.send_bytes(login() + beat(3))
            late.disconnect()
            await SecureConnection(fixture.dispatcher, late, security).serve()
            for stream in streams:
                stream.disconnect()
        gone.send_bytes(struct.pack(">i", 500_000) + bytes(400_000))
        gone.disconnect()
        await SecureConnection(fixture.dispatcher, gone, security).serve()
        assert gone.receives > 5, "what others held is free again"

    in_virtual_time(run)
    assert codes(late, (HANDSHAKE, 1), (TOKEN, 2), (BEAT, 0)) == [0, 0, 7]
    assert security.pre_auth_memory.resize(0, 16 * 1024 * 1024), "nothing is held by anybody"


def test_small_login_frames_do_not_count_towards_the_limit(
    fixture: DispatcherFixture,
) -> None:
    """Many clients with large tokens may reconnect at once."""
    security, stream = listener_security(), ClientStream()
    assert security.pre_auth_memory.resize(0, 16 * 1024 * 1024)
    token = b"\0alice\0" + b"x" * 7000

    async def run() -> None:
        stream.send_bytes(frame(HANDSHAKE, 1, 1, SaslHandshakeRequest("PLAIN")))
        stream.send_bytes(frame(TOKEN, 2, 2, SaslAuthenticateRequest(token)))
        await SecureConnection(fixture.dispatcher, stream, security).serve()

    in_virtual_time(run)
    assert codes(stream, (HANDSHAKE, 1), (TOKEN, 2)) == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]
