"""OAUTHBEARER: key sets, settings, and logins."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.security.authn import oauthbearer_config
from ottla.broker.security.authn.jwks import JsonWebKeySet, JwksRefresh
from ottla.broker.security.authn.jwt_validator import BrokerJwtValidator
from ottla.broker.security.authn.listener_security import build_listener_security, find_listener_problems
from ottla.broker.security.authn.oauthbearer_config import (
    CALLBACK_HANDLER,
    JWKS_URL,
    UNSECURED_HANDLER,
    VALIDATOR_HANDLERS,
)
from ottla.broker.security.authn.oauthbearer_server import InvalidToken
from ottla.broker.security.authn.sasl_authenticator import SaslAuthenticator, SaslPolicy, SaslState
from ottla.broker.security.authn.tests.oauthbearer_fixture import (
    INVALID_TOKEN_RESPONSE,
    NOW_S,
    PATH,
    VALID_CLAIMS,
    create_env,
    create_jwks,
    create_requirements,
    create_validator,
    initial_message,
)
from ottla.broker.security.authn.tests.test_sasl_authenticator import authenticate_frame, handshake
from ottla.broker.security.authn.tests.token_issuer import OTHER, RSA, build_jwks, sign_token
from ottla.broker.tests.connection_fixture import in_virtual_time
from ottla.client.http_client import HttpFetchError, http_get
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsResponse

# ------------------------------------------------------------------ 330: keys


@pytest.mark.behaviour("S-330")
def test_jwks_file_is_read_again_when_it_changes() -> None:
    env = create_env(build_jwks(("a", OTHER)))
    tokens = create_validator(env)
    for _ in range(3):
        with pytest.raises(InvalidToken):
            tokens.validate(sign_token(VALID_CLAIMS))
    assert env.disk.reads == 1
    env.disk.put(build_jwks(("a", RSA)))
    assert tokens.validate(sign_token(VALID_CLAIMS)).principal_name == "alice"
    env.disk.put(b"half a fi")
    with pytest.raises(InvalidToken):
        tokens.validate(sign_token(VALID_CLAIMS))
    env.disk.put(build_jwks(("a", RSA)))
    assert tokens.validate(sign_token(VALID_CLAIMS)).principal_name == "alice"


@pytest.mark.behaviour("S-330")
def test_jwks_file_missing_rejects_all_tokens() -> None:
    with pytest.raises(InvalidToken):
        BrokerJwtValidator(create_requirements(), create_jwks(create_env(), "file:///elsewhere"), lambda: 0).validate(
            sign_token(VALID_CLAIMS)
        )


class JwksProvider:
    """Publishes keys and counts the requests for them."""

    def __init__(self, env: Any) -> None:
        self.env, self.requested = env, list[bytes]()
        self.answer = b""
        self.at: list[float] = []

    def publish(self, body: bytes, status: str = "200 OK", head: str = "") -> None:
        self.answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body

    async def run(self) -> None:
        listener = await self.env.net.listen("idp", 80)
        while True:
            side = await listener.accept()
            buffer = bytearray(10_000)
            count = await side.receive_into(memoryview(buffer), 10.0)
            self.requested.append(bytes(buffer[:count]))
            self.at.append(trio.current_time())
            await side.send([self.answer])
            side.close()


def with_provider(main: Any) -> None:
    async def run() -> None:
        env = create_env()
        provider = JwksProvider(env)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(provider.run)
            await trio.sleep(0.1)
            await main(env, provider, nursery)
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


@pytest.mark.behaviour("S-330")
def test_jwks_endpoint_is_refreshed_periodically_and_for_unknown_key_id() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(build_jwks(("a", RSA)))
        keys = JsonWebKeySet(env, "http://idp/where/keys?are=here", JwksRefresh(600_000, 100, 10_000))
        tokens = BrokerJwtValidator(create_requirements(), keys, lambda: NOW_S * 1000)
        nursery.start_soon(keys.run)
        await trio.sleep(5)
        assert tokens.validate(sign_token(VALID_CLAIMS)).principal_name == "alice"
        assert provider.requested[0].startswith(b"GET /where/keys?are=here HTTP/1.1\r\nHost: idp\r\n")
        provider.publish(build_jwks(("b", OTHER)))
        for _ in range(5):
            with pytest.raises(InvalidToken):
                tokens.validate(sign_token(VALID_CLAIMS, OTHER, kid="c"))
            await trio.sleep(2)
        assert len(provider.requested) == 2, "once a minute for each name"
        assert tokens.validate(sign_token(VALID_CLAIMS, OTHER, kid="b")).principal_name == "alice"
        await trio.sleep(550)
        assert len(provider.requested) == 2
        await trio.sleep(60)
        assert len(provider.requested) == 3

    with_provider(main)


@pytest.mark.behaviour("S-330")
def test_jwks_endpoint_unknown_key_ids_refresh_at_most_once_a_second() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(build_jwks(("a", RSA)))
        keys = create_jwks(env, "http://idp/")
        nursery.start_soon(keys.run)
        await trio.sleep(5)
        for number in range(1000):
            with pytest.raises(InvalidToken):
                keys.verify({"alg": "RS256", "kid": f"k{number}"}, "a.b.c")
            await trio.sleep(0.01)
        assert len(provider.requested) <= 12

    with_provider(main)


@pytest.mark.behaviour("S-330")
def test_jwks_endpoint_failure_keeps_keys_and_retries_with_backoff() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(build_jwks(("a", RSA)))
        keys = JsonWebKeySet(env, "http://idp/", JwksRefresh(60_000, 100, 1_000))
        nursery.start_soon(keys.run)
        await trio.sleep(59)
        provider.publish(b"", "500 Never")
        await trio.sleep(4)
        assert [key["kid"] for key in keys._keys] == ["a"]
        gaps = [round(b - a, 1) for a, b in zip(provider.at[1:], provider.at[2:], strict=False)]
        assert gaps[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
        provider.publish(build_jwks(("b", RSA)))
        await trio.sleep(1)
        assert [key["kid"] for key in keys._keys] == ["b"]

    with_provider(main)


@pytest.mark.parametrize(
    ("answer", "document"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", None),
        (b"HTTP/1.1 404 Not Found\r\n\r\nabc", None),
        (b"", None),
        (b"220 mail.example\r\n", None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * (1 << 20), None),
    ],
)
def test_http_get_returns_document_or_raises_http_fetch_error(answer: bytes, document: bytes | None) -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.answer = answer
        if document is None:
            with pytest.raises(HttpFetchError):
                await http_get(env, "http://idp/x")
            assert len(provider.requested) == 1, "nowhere else is looked"
        else:
            assert await http_get(env, "http://idp/x") == document

    with_provider(main)


def test_http_get_connection_refused_raises_http_fetch_error() -> None:
    async def run() -> None:
        with pytest.raises(HttpFetchError, match="nobody listens"):
            await http_get(create_env(), "http://idp/x")

    in_virtual_time(run)


# ------------------------------------------------------------------ settings and logins

SETTINGS = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
PREFIX = "listener.name.in.oauthbearer."
ACCEPTING = {**SETTINGS, f"{PREFIX}{CALLBACK_HANDLER}": VALIDATOR_HANDLERS[0], f"{PREFIX}{JWKS_URL}": f"file://{PATH}"}


@pytest.mark.behaviour("S-328")
@pytest.mark.parametrize(
    ("values", "key"),
    [
        (ACCEPTING, None),
        (
            {**SETTINGS, f"{PREFIX}{CALLBACK_HANDLER}": VALIDATOR_HANDLERS[1], JWKS_URL: "https://idp.example/keys"},
            None,
        ),
        ({**SETTINGS, f"{PREFIX}{CALLBACK_HANDLER}": UNSECURED_HANDLER}, None),
        (SETTINGS, CALLBACK_HANDLER),
        ({**SETTINGS, f"{PREFIX}{CALLBACK_HANDLER}": "my.own.Handler"}, CALLBACK_HANDLER),
        ({**ACCEPTING, f"{PREFIX}{JWKS_URL}": ""}, JWKS_URL),
        ({**ACCEPTING, f"{PREFIX}{JWKS_URL}": "ftp://idp/keys"}, JWKS_URL),
        ({**ACCEPTING, f"{PREFIX}{JWKS_URL}": "https://[::"}, JWKS_URL),
        ({**ACCEPTING, f"{PREFIX}{JWKS_URL}": "file://"}, JWKS_URL),
        ({**ACCEPTING, f"{PREFIX}sasl.jaas.config": "nonsense"}, "sasl.jaas.config"),
        ({**ACCEPTING, "sasl.oauthbearer.clock.skew.seconds": "-1"}, "sasl.oauthbearer.clock.skew.seconds"),
        (
            {**ACCEPTING, "sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"},
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ),
        (
            {
                **SETTINGS,
                f"{PREFIX}{CALLBACK_HANDLER}": UNSECURED_HANDLER,
                f"{PREFIX}sasl.jaas.config": 'x.Y required unsecuredValidatorAllowableClockSkewMs="x";',
            },
            "sasl.jaas.config",
        ),
    ],
)
def test_oauthbearer_listener_requires_validator_settings(values: dict[str, str], key: str | None) -> None:
    """CVE-2026-33557, CVE-2026-110985: without a configured key set, no signature was required."""
    found = [x for x, _ in find_listener_problems(values, {"IN": "SASL_PLAINTEXT"})]
    assert found == ([] if key is None else [PREFIX + key])


def test_oauthbearer_without_libraries_reports_installation_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauthbearer_config, "find_spec", lambda name: None)
    ((key, why),) = find_listener_problems(ACCEPTING, {"IN": "SASL_PLAINTEXT"})
    assert key == PREFIX + CALLBACK_HANDLER
    assert "pip install 'ottla[oauth]'" in why


def create_authenticator(env: Any) -> SaslAuthenticator:
    security = build_listener_security(ACCEPTING, "IN", "SASL_PLAINTEXT", lambda *_: None, env)
    assert security is not None
    return SaslAuthenticator(
        SaslPolicy(security.sasl_server_factories(env), {}, lambda _: ApiVersionsResponse(), env.now_ms)
    )


@pytest.mark.behaviour("S-316")
def test_oauthbearer_session_lifetime_is_that_of_the_token() -> None:
    async def run() -> None:
        env = create_env(build_jwks(("a", RSA)))
        made, ends_s = create_authenticator(env), env.now_ms() // 1000 + 60
        made.handle(handshake("OAUTHBEARER"), 0)
        claims = {"sub": "alice", "iat": 0, "exp": ends_s}
        result: Any = made.handle(authenticate_frame(initial_message(sign_token(claims))), 0).response
        assert (result.error_code, result.auth_bytes, made.state, made.principal_name) == (
            0,
            b"",
            SaslState.COMPLETE,
            "alice",
        )
        assert result.session_lifetime_ms == ends_s * 1000 - env.now_ms()
        assert made.deadline_ms == result.session_lifetime_ms
        assert made.check_session(3, result.session_lifetime_ms + 1) is None

    in_virtual_time(run)


@pytest.mark.behaviour("S-327")
def test_oauthbearer_invalid_token_returns_json_then_error_58() -> None:
    async def run() -> None:
        made = create_authenticator(create_env(build_jwks(("a", RSA))))
        made.handle(handshake("OAUTHBEARER"), 0)
        first = made.handle(authenticate_frame(initial_message(sign_token(VALID_CLAIMS, OTHER))), 0)
        result: Any = first.response
        assert (result.error_code, result.auth_bytes, first.failure) == (0, INVALID_TOKEN_RESPONSE, None)
        outcome = made.handle(authenticate_frame(b"\x01"), 0)
        result = outcome.response
        assert (result.error_code, result.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            INVALID_TOKEN_RESPONSE.decode(),
        )
        assert outcome.is_delayed
        assert sign_token(VALID_CLAIMS, OTHER)[:20] not in str(outcome.failure)

    in_virtual_time(run)
