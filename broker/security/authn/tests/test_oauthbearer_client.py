"""OAUTHBEARER clients: sources of the tokens of nodes and commands, and successful logins with them."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker import credentials
from ottla.broker.interbroker.tests.test_credentials import HERE, THREE
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.tests.test_connection import BEAT
from ottla.broker.security.authn.listener_security import build_listener_security
from ottla.broker.security.authn.tests.oauthbearer_fixture import PATH, create_env
from ottla.broker.security.authn.tests.test_jwks import JwksProvider, with_provider
from ottla.broker.security.authn.tests.token_issuer import OTHER, RSA, build_jwks, sign_token
from ottla.broker.tests.connection_fixture import DispatcherFixture, in_virtual_time
from ottla.broker.tests.memory_net import MemoryNet
from ottla.client.channel import open_channel
from ottla.client.connection_security import AuthenticationFailed, BearerTokenSource, SaslLogin
from ottla.client.oauthbearer import (
    CALLBACK_HANDLER_KEY,
    CALLBACK_HANDLERS,
    TOKEN_ENDPOINT_KEY,
    TokenUnavailable,
    get_token,
)
from ottla.client.security_config import InvalidSecurityConfig, parse_connection_security
from ottla.env.tls import TlsConfig
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CREDENTIALS = "sasl.oauthbearer.client.credentials.client."
FILE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{MODULE};",
    CALLBACK_HANDLER_KEY: CALLBACK_HANDLERS[0],
    TOKEN_ENDPOINT_KEY: "file:///token",
}
GIVEN = {**FILE, TOKEN_ENDPOINT_KEY: "https://idp/token", CREDENTIALS + "id": "me", CREDENTIALS + "secret": "my-secret"}


def source(**more: str) -> BearerTokenSource:
    login = parse_connection_security({**GIVEN, **more}).login
    assert login is not None
    assert login.token_source is not None
    return login.token_source


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize("handler", CALLBACK_HANDLERS)
def test_token_source_is_file_or_endpoint_from_client_settings(handler: str) -> None:
    assert parse_connection_security({**FILE, CALLBACK_HANDLER_KEY: handler}).login == SaslLogin(
        "OAUTHBEARER", "", "", token_source=BearerTokenSource(FILE[TOKEN_ENDPOINT_KEY])
    )
    assert source() == BearerTokenSource("https://idp/token", "me", "my-secret")
    assert "secret" not in repr(parse_connection_security(GIVEN))


def test_credential_settings_override_jaas_config() -> None:
    jaas = f'{MODULE} clientId="other" clientSecret="other-secret" scope="a b";'
    assert source(**{"sasl.jaas.config": jaas}) == BearerTokenSource("https://idp/token", "me", "my-secret", "a b")
    alone = {k: v for k, v in GIVEN.items() if not k.startswith(CREDENTIALS)}
    login = parse_connection_security({**alone, "sasl.jaas.config": jaas}).login
    assert login is not None
    assert login.token_source == BearerTokenSource("https://idp/token", "other", "other-secret", "a b")


def test_client_credentials_are_url_encoded_on_request() -> None:
    more = {
        "sasl.oauthbearer.header.urlencode": "true",
        CREDENTIALS + "secret": "a:b c",
        "sasl.oauthbearer.scope": "a/b",
    }
    made = source(**more)
    assert (made.secret, made.scope) == ("a%3Ab+c", "a%2Fb")


def test_token_endpoint_truststore_is_read_from_jaas_config() -> None:
    made = source(**{"sasl.jaas.config": f'{MODULE} ssl.truststore.location="/ca.pem";'})
    assert isinstance(made.tls, TlsConfig)
    assert made.tls.truststore is not None


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({CALLBACK_HANDLER_KEY: ""}, CALLBACK_HANDLER_KEY),
        ({CALLBACK_HANDLER_KEY: "my.own.Handler"}, CALLBACK_HANDLER_KEY),
        ({TOKEN_ENDPOINT_KEY: ""}, TOKEN_ENDPOINT_KEY),
        ({TOKEN_ENDPOINT_KEY: "ftp://idp"}, TOKEN_ENDPOINT_KEY),
        ({CREDENTIALS + "id": " "}, CREDENTIALS + "id"),
        ({CREDENTIALS + "secret": ""}, CREDENTIALS + "secret"),
        ({CREDENTIALS + "secret": "a-secret\r\nX: y"}, "cannot be sent"),
        ({"sasl.jaas.config": f'{MODULE} clientSecret="a-secret'}, "sasl.jaas.config"),
    ],
)
def test_invalid_oauthbearer_settings_raise_without_secret(changed: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidSecurityConfig, match=word) as refused:
        parse_connection_security({**GIVEN, **changed})
    assert "a-secret" not in str(refused.value)
    assert "my-secret" not in str(refused.value)


@pytest.mark.behaviour("S-303")
def test_inter_broker_and_controller_access_uses_token_source() -> None:
    own = {
        credentials.INTER_BROKER_MECHANISM: "OAUTHBEARER",
        "listener.name.in.oauthbearer.sasl.jaas.config": f"{MODULE};",
        "listener.name.in.oauthbearer." + CALLBACK_HANDLER_KEY: CALLBACK_HANDLERS[0],
        TOKEN_ENDPOINT_KEY: "file:///token",
    }
    config = NodeConfig({**THREE, **own})
    assert credentials.inter_broker_access(config).login == SaslLogin(
        "OAUTHBEARER", "", "", token_source=BearerTokenSource("file:///token")
    )
    assert credentials.inter_broker_access(config) is credentials.inter_broker_access(config), (
        "who goes there shares the token"
    )
    assert list(credentials.find_credential_problems(config)) == []
    del own["listener.name.in.oauthbearer." + CALLBACK_HANDLER_KEY]
    ((key, why),) = credentials.find_credential_problems(NodeConfig({**THREE, **own}))
    assert (key, CALLBACK_HANDLER_KEY in why) == (credentials.INTER_BROKER_MECHANISM, True)


# ------------------------------------------------------------------ where tokens come from


@pytest.mark.parametrize("text", [b"", b"two words", b"\xff", b"a\r\nb"])
def test_token_file_without_valid_token_raises_token_unavailable(text: bytes) -> None:
    async def run() -> None:
        with pytest.raises(TokenUnavailable):
            await get_token(create_env(text), BearerTokenSource(f"file://{PATH}"))
        with pytest.raises(TokenUnavailable):
            await get_token(create_env(), BearerTokenSource("file:///elsewhere"))

    in_virtual_time(run)


def test_token_file_is_read_for_each_login() -> None:
    async def run() -> None:
        env = create_env(b" first.token.x\n")
        assert await get_token(env, BearerTokenSource(f"file://{PATH}")) == "first.token.x"
        env.disk.put(b"second==")
        assert await get_token(env, BearerTokenSource(f"file://{PATH}")) == "second=="

    in_virtual_time(run)


def test_token_endpoint_request_contains_only_credentials_and_scope() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(b'{"access_token": "a.b.c", "expires_in": 60}')
        requested = BearerTokenSource("http://idp/token?x=y", "me", "my-secret", "read")
        assert await get_token(env, requested) == "a.b.c"
        head, body = provider.requested[0].split(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert lines[0] == "POST /token?x=y HTTP/1.1"
        fields = dict(line.split(": ", 1) for line in lines[1:])
        assert b64decode(fields["Authorization"].removeprefix("Basic ")) == b"me:my-secret"
        assert fields["Content-Type"] == "application/x-www-form-urlencoded"
        assert int(fields["Content-Length"]) == len(body)
        assert body == b"grant_type=client_credentials&scope=read"
        await trio.sleep(60)
        provider.publish(b'{"id_token": "d.e.f"}')
        assert await get_token(env, requested) == "d.e.f"

    with_provider(main)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", "200 OK"),
        (b"[]", "200 OK"),
        (b'{"access_token": 5}', "200 OK"),
        (b'{"access_token": "not one"}', "200 OK"),
        (b'{"access_token": "a.b.c"}', "401 Unauthorized"),
        (b"[" * 9_000, "200 OK"),
    ],
)
def test_token_endpoint_invalid_response_raises_without_secret(body: bytes, status: str) -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(body, status)
        with pytest.raises(TokenUnavailable) as refused:
            await get_token(env, BearerTokenSource("http://idp/token", "me", "my-secret"))
        assert "secret" not in str(refused.value)
        assert "a.b.c" not in str(refused.value)

    with_provider(main)


# ------------------------------------------------------------------ logins

ACCEPTING = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.in.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
    "OAuthBearerValidatorCallbackHandler",
    "sasl.oauthbearer.jwks.endpoint.url": f"file://{PATH}",
}


@pytest.mark.parametrize("key", [RSA, OTHER], ids=["good", "somebody else's"])
def test_client_logs_in_with_valid_token_only(monkeypatch: pytest.MonkeyPatch, key: Any) -> None:
    fixture = DispatcherFixture(monkeypatch)
    versions = [(ApiKey.SASL_HANDSHAKE, 0, 1), (ApiKey.SASL_AUTHENTICATE, 0, 2), (BEAT, 0, 4)]
    known = [ApiVersion(*x) for x in versions]
    fixture.serve(ApiKey.API_VERSIONS, lambda context, request: ApiVersionsResponse(api_keys=known), high=4)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=len(context.peer.principal)), high=4)
    files = {
        PATH: build_jwks(("a", RSA)),
        "/token": sign_token({"sub": "node", "iat": 0, "exp": 10**9}, key).encode(),
    }
    env: Any = fixture.env
    env.net, env.uuid = MemoryNet(), lambda: bytes(16)
    monkeypatch.setattr("ottla.client.oauthbearer.read_file", lambda disk, path: files[path])
    access, reported = parse_connection_security(FILE), []

    async def run() -> None:
        env.disk = create_env(files[PATH]).disk
        security = build_listener_security(ACCEPTING, "IN", "SASL_PLAINTEXT", lambda *_: None, env)
        async with trio.open_nursery() as nursery:
            listener = await env.net.listen(*HERE)
            nursery.start_soon(Acceptor(fixture.dispatcher, security).run, listener)
            try:
                channel = await open_channel(env, HERE, "me", 10.0, access)
                reported.append((await channel.call(HeartbeatRequest())).error_code)
            except AuthenticationFailed as error:
                reported.append(str(error))
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    if key is RSA:
        assert reported == [len("User:node")]
    else:
        assert reported == ['Authentication failed as the principal of the token: {"status":"invalid_token"}']
