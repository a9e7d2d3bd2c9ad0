"""Every API in every state before authentication, in plaintext and on TLS: none is processed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import trio

from ottla.broker.api_spec import LARGE_BYTES
from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_secure_connection import CertificateStream, listener_security, login
from ottla.broker.security.authn.plain_server import PlainSaslServer
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException
from ottla.broker.security.authn.tests.test_sasl_authenticator import keys
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.client.scram import SCRAM_SHA_256, ScramClient
from ottla.wire.api_keys import ApiKey, request_class, request_spec
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

VERSIONS = frame(ApiKey.API_VERSIONS, 3, 1, ApiVersionsRequest("a", "1"))
SESSION_MS = 5_000
ENABLED = {"sasl_enabled_mechanisms": f"PLAIN,{SCRAM_SHA_256}", "connections_max_reauth_ms": str(SESSION_MS)}


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, version, 2, SaslHandshakeRequest(mechanism))


def raw(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


def authenticate(token: bytes) -> bytes:
    return frame(ApiKey.SASL_AUTHENTICATE, 2, 3, SaslAuthenticateRequest(token))


def scram() -> bytes:
    return ScramClient(SCRAM_SHA_256, "alice", "x", "n").first_message()


class ConnectionState(NamedTuple):
    """State of a connection, with the frames sent at once and some seconds later."""

    first: bytes = b""
    after_s: float = 0.0
    then: bytes = b""
    is_lost: bool = False
    """True when the connection ends anyway: the probed request arrives with the frame that ends it."""


STATES = {
    "nothing was said": ConnectionState(),
    "versions were asked for": ConnectionState(VERSIONS),
    "a mechanism was chosen": ConnectionState(handshake()),
    "versions, then a mechanism": ConnectionState(VERSIONS + handshake()),
    "tokens travel raw": ConnectionState(handshake(version=0)),
    "half of a login": ConnectionState(handshake(SCRAM_SHA_256) + authenticate(scram())),
    "half of a login, raw": ConnectionState(handshake(SCRAM_SHA_256, 0) + raw(scram())),
    "a wrong password": ConnectionState(handshake() + authenticate(b"\0alice\0wrong"), is_lost=True),
    "the session has ended": ConnectionState(login(), SESSION_MS / 1000 + 0.1),
    "a login anew": ConnectionState(login(), 2.0, handshake()),
    "a login anew, by another mechanism": ConnectionState(login(), 2.0, handshake(SCRAM_SHA_256)),
}


def keys_of(state: str) -> list[ApiKey]:
    """Return all APIs except ApiVersions in states where it is answered before authentication."""
    return [key for key in ApiKey if (state, key) != ("nothing was said", ApiKey.API_VERSIONS)]


class RecordingDispatcher(DispatcherFixture):
    """Dispatcher that serves every API and records its requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.env.uuid = lambda: b"u" * 16  # type: ignore[attr-defined]
        self.done: list[ApiKey] = []
        for key in ApiKey:
            self.serve(key, self._handler(key), 0, 99)

    def _handler(self, key: ApiKey) -> Callable[[Any, Any], Any]:
        def handle(context: Any, request: Any) -> Any:
            if key is ApiKey.API_VERSIONS and request.client_software_name == "a":
                return ApiVersionsResponse()  # on the way into a state
            self.done.append(key)
            return None

        return handle


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("state", STATES)
def test_no_api_is_processed_before_authentication(monkeypatch: pytest.MonkeyPatch, state: str, protocol: str) -> None:
    fixture, state_frames = RecordingDispatcher(monkeypatch), STATES[state]
    security = replace(listener_security(protocol, **ENABLED), scram_keys=keys)
    streams = [
        (key, CertificateStream("CN=admin") if protocol == "SASL_SSL" else ClientStream()) for key in keys_of(state)
    ]

    left = list[ApiKey]()

    async def probe(key: ApiKey, stream: ClientStream) -> None:
        stream.send_bytes(state_frames.first)
        if state_frames.after_s:
            await trio.sleep(state_frames.after_s)
            stream.send_bytes(state_frames.then)
        if not state_frames.is_lost:
            await trio.sleep(0.5)
            assert not stream.is_closed, "it did not come into the state"
        stream.send_bytes(frame(key, request_spec(key).versions.high, 9, request_class(key)()))
        await trio.sleep(1)
        if not stream.is_closed:
            left.append(key)
            stream.disconnect()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for key, stream in streams:
                nursery.start_soon(SecureConnection(fixture.dispatcher, stream, security).serve)
                nursery.start_soon(probe, key, stream)

    in_virtual_time(run)
    assert fixture.done == []
    assert left == [], "they were not hung up on"


def test_client_without_tls_at_tls_listener_gets_no_response(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture, streams = RecordingDispatcher(monkeypatch), list[ClientStream]()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for protocol in ("SSL", "SASL_SSL"):
                for key in ApiKey:
                    streams.append(CertificateStream(None, OSError("no TLS")))
                    streams[-1].send_bytes(
                        login() + frame(key, request_spec(key).versions.high, 9, request_class(key)())
                    )
                    nursery.start_soon(
                        SecureConnection(fixture.dispatcher, streams[-1], listener_security(protocol)).serve
                    )

    in_virtual_time(run)
    assert fixture.done == []
    assert [stream.received for stream in streams] == [b""] * len(streams)
    assert all(stream.is_closed for stream in streams)


def test_same_requests_are_served_after_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the probes above are served after authentication, and counts them."""
    fixture = RecordingDispatcher(monkeypatch)

    async def run() -> None:
        for key in ApiKey:
            stream = ClientStream()
            stream.send_bytes(login() + frame(key, request_spec(key).versions.high, 9, request_class(key)()))
            stream.disconnect()
            await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    assert set(fixture.done) == set(ApiKey)
    assert sum(len(keys_of(state)) for state in STATES) * 2 >= 1_400


@pytest.mark.parametrize(
    ("password", "is_read"),
    [(b"\xff" * 32_000, True), (b"\xff" * 33_000, False), (b"x" * 500_000, True), ("ö" * 250_000, True)],
)
def test_invalid_utf8_plain_token_is_decoded_up_to_a_limit(password: bytes | str, *, is_read: bool) -> None:
    """Half a mebibyte of invalid UTF-8 takes 50 ms to decode, as much valid text one."""
    token = b"\0alice\0" + (password.encode() if isinstance(password, str) else password)
    with pytest.raises(SaslAuthenticationException) as refused:
        PlainSaslServer({}).evaluate(token)
    assert str(refused.value) == (
        "Authentication failed: Invalid username or password" if is_read else "no PLAIN message"
    )
    assert (refused.value.client_message is not None) is is_read


@pytest.mark.parametrize("name_bytes", [LARGE_BYTES, 32_767])
def test_large_api_versions_before_authentication_is_answered(monkeypatch: pytest.MonkeyPatch, name_bytes: int) -> None:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(ApiKey.API_VERSIONS, lambda context, request: ApiVersionsResponse(0, throttle_time_ms=7))
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(frame(ApiKey.API_VERSIONS, 3, 1, ApiVersionsRequest("a" * name_bytes, "1")))
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, listener_security()).serve()

    in_virtual_time(run)
    ((_, answer),) = stream.responses(ApiKey.API_VERSIONS, 3)
    assert answer == ApiVersionsResponse(0, throttle_time_ms=7)
