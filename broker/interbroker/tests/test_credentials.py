"""Logins of nodes at each other with the credentials of their settings."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker import credentials
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.tests.test_connection import BEAT
from ottla.broker.security.authn.listener_security import build_listener_security
from ottla.broker.tests.connection_fixture import DispatcherFixture, in_virtual_time
from ottla.broker.tests.memory_net import MemoryNet
from ottla.client import scram
from ottla.client.channel import open_channel
from ottla.client.connection_security import NO_SECURITY, AuthenticationFailed, ConnectionSecurity, SaslLogin
from ottla.client.node_connection import NodeConnection
from ottla.client.scram import SCRAM_SHA_256, SCRAM_SHA_512
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.in.plain.sasl.jaas.config": 'x.Y required username="n" password="n-secret" user_n="n-secret";',
}
HERE = ("127.0.0.1", 9092)


def keys(user: str, mechanism: str) -> scram.ScramCredential | None:
    salted = scram.salted_password(mechanism, "n-secret", b"salt", 4096)
    return scram.derive_credential(mechanism, salted, b"salt", 4096) if user == "n" else None


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    known = [
        ApiVersion(ApiKey.SASL_HANDSHAKE, 0, 1),
        ApiVersion(ApiKey.SASL_AUTHENTICATE, 0, 2),
        ApiVersion(BEAT, 0, 4),
    ]
    fixture.serve(ApiKey.API_VERSIONS, lambda context, request: ApiVersionsResponse(api_keys=known), high=4)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=len(context.peer.principal)), high=4)
    fixture.env.net = MemoryNet()  # type: ignore[attr-defined]
    fixture.env.uuid = lambda: bytes(16)  # type: ignore[attr-defined]
    return fixture


def with_listener(fixture: DispatcherFixture, main: Any) -> None:
    """Run a task while a listener requires authentication."""
    security = build_listener_security(SETTINGS, "IN", "SASL_PLAINTEXT", keys)
    env: Any = fixture.env

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            listener = await env.net.listen(*HERE)
            nursery.start_soon(Acceptor(fixture.dispatcher, security).run, listener)
            await main(env)
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM_SHA_256, SCRAM_SHA_512])
def test_correct_credentials_authenticate(fixture: DispatcherFixture, mechanism: str) -> None:
    answers = []

    async def main(env: Any) -> None:
        channel = await open_channel(
            env, HERE, "me", 10.0, ConnectionSecurity(None, SaslLogin(mechanism, "n", "n-secret"))
        )
        answers.append((await channel.call(HeartbeatRequest())).error_code)

    with_listener(fixture, main)
    assert answers == [len("User:n")]


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM_SHA_256])
def test_wrong_credentials_raise_and_close_the_connection(fixture: DispatcherFixture, mechanism: str) -> None:
    async def main(env: Any) -> None:
        with pytest.raises(AuthenticationFailed) as refused:
            await open_channel(
                env, HERE, "me", 10.0, ConnectionSecurity(None, SaslLogin(mechanism, "n", "wrong-secret"))
            )
        assert "secret" not in str(refused.value)
        assert env.net.accepted[0].peer_stream.is_closed

    with_listener(fixture, main)


def test_disabled_mechanism_error_lists_enabled_ones(fixture: DispatcherFixture) -> None:
    async def main(env: Any) -> None:
        message = "GSSAPI is not enabled in the server: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 enabled"
        with pytest.raises(AuthenticationFailed, match=message):
            await open_channel(env, HERE, "me", 10.0, ConnectionSecurity(None, SaslLogin("GSSAPI", "n", "n-secret")))

    with_listener(fixture, main)


def test_node_connection_without_api_versions_authenticates(fixture: DispatcherFixture) -> None:
    answers = []

    async def main(env: Any) -> None:
        access = ConnectionSecurity(None, SaslLogin(SCRAM_SHA_512, "n", "n-secret"))
        connection = NodeConnection(env, "me", "a broker", lambda: HERE, 10.0, access=lambda: access, negotiates=False)
        answers.append((await connection.call(HeartbeatRequest(), 0)).error_code)
        connection.close()

    with_listener(fixture, main)
    assert answers == [len("User:n")]


THREE = {
    "listeners": "CLIENT://a:1,IN://a:2,CONTROLLER://a:3",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,IN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "controller.quorum.voters": "1@a:3,2@b:3",
    **SETTINGS,
}


@pytest.mark.behaviour("S-303")
def test_inter_broker_and_controller_access_follow_their_listeners() -> None:
    config = NodeConfig({**THREE, credentials.INTER_BROKER_MECHANISM: "PLAIN"})
    assert credentials.inter_broker_access(config) == ConnectionSecurity(None, SaslLogin("PLAIN", "n", "n-secret"))
    assert credentials.controller_access(config) == NO_SECURITY


@pytest.mark.behaviour("S-303")
def test_missing_inter_broker_credentials_are_reported_at_startup() -> None:
    # GSSAPI is the default
    assert [key for key, _ in credentials.find_credential_problems(NodeConfig(dict(THREE)))] == [
        credentials.INTER_BROKER_MECHANISM
    ]
    assert (
        list(credentials.find_credential_problems(NodeConfig({**THREE, credentials.INTER_BROKER_MECHANISM: "PLAIN"})))
        == []
    )
    alone = {key: value for key, value in THREE.items() if key != "controller.quorum.voters"}
    assert list(credentials.find_credential_problems(NodeConfig(alone))) == []
