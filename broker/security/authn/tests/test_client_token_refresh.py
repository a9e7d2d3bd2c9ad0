"""Lifetime of client tokens, and rate of requests to the token endpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import trio

from ottla.broker.security.authn.tests.test_jwks import JwksProvider, with_provider
from ottla.broker.security.authn.tests.token_issuer import sign_token
from ottla.client.connection_security import AuthenticationFailed, BearerTokenSource, SaslLogin
from ottla.client.oauthbearer import TokenUnavailable, get_token, reject_token
from ottla.client.sasl_authentication import authenticate
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse


def given(token: str, expires_in: Any = None) -> bytes:
    return json.dumps({"access_token": token, "expires_in": expires_in}).encode()


async def gaps(env: Any, provider: JwksProvider, requested: BearerTokenSource, seconds: float) -> list[float]:
    """Return the seconds between requests to the provider, when a client connects 20 times a second in vain."""
    until, first = trio.current_time() + seconds, len(provider.at)
    while trio.current_time() < until:
        with suppress(TokenUnavailable):
            reject_token(env, requested, await get_token(env, requested))
        await trio.sleep(0.05)
    at = provider.at[first:]
    return [round(later - sooner, 1) for sooner, later in pairwise(at)]


IN_TIME = sign_token({"exp": 1_060})
"""Claims for a clock at 1,000 s after 1970."""


@pytest.mark.parametrize(
    ("token", "expires_in", "good_for_s"),
    [
        ("a.b.c", 60, 48),
        ("a.b.c", "60", 48),
        ("opaque", 60.0, 48),
        (IN_TIME, None, 48),
        (IN_TIME, 3_600, 48),
        (IN_TIME, 10, 8),
        ("a.b.c", None, 0),
        ("a.b.c", 0, 0),
        ("a.b.c", -5, 0),
        ("a.b.c", 1e300, 0),
        ("a.b.c", [], 0),
        ("a.W10.c", "x", 0),
    ],
)
def test_token_is_reused_until_four_fifths_of_its_lifetime(token: str, expires_in: Any, good_for_s: float) -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given(token, expires_in))
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        assert await get_token(env, requested) == token
        await trio.sleep(max(good_for_s - 1, 0))
        assert await get_token(env, requested) == token
        assert len(provider.requested) == (1 if good_for_s else 2)
        await trio.sleep(2)
        provider.publish(given("another", 60))
        assert await get_token(env, requested) == "another"

    with_provider(main)


def test_token_endpoint_failure_backs_off_exponentially() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(b"", "401 Unauthorized")
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        assert await gaps(env, provider, requested, 40) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
        with pytest.raises(TokenUnavailable, match="401"):
            await get_token(env, requested)
        provider.publish(given("a.b.c", 60))
        await trio.sleep(10)
        assert await get_token(env, requested) == "a.b.c"
        await trio.sleep(60)
        provider.publish(b"", "401 Unauthorized")
        assert (await gaps(env, provider, requested, 1))[:2] == [0.1, 0.2], "it had given one in between"

    with_provider(main)


@pytest.mark.parametrize("expires_in", [60, None])
def test_rejected_token_is_refreshed_with_exponential_backoff(expires_in: int | None) -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given("a.b.c", expires_in))
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        assert await gaps(env, provider, requested, 40) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
        assert await get_token(env, requested) == "a.b.c", "others may take it"
        provider.publish(given("d.e.f", expires_in))
        await trio.sleep(10)
        assert await get_token(env, requested) == "d.e.f"
        reject_token(env, requested, "a.b.c")
        assert not requested.cache.is_rejected, "that was another one"

    with_provider(main)


def test_token_due_for_refresh_is_used_until_it_expires() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given("a.b.c", 100))
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        assert await get_token(env, requested) == "a.b.c"
        provider.publish(b"", "500 Never")
        for passes_s, shown in ((81, "a.b.c"), (18, "a.b.c"), (2, None)):
            await trio.sleep(passes_s)
            if shown is None:
                with pytest.raises(TokenUnavailable):
                    await get_token(env, requested)
            else:
                assert await get_token(env, requested) == shown
        assert len(provider.requested) == 4

    with_provider(main)


def test_rejected_token_is_kept_for_other_connections_until_replaced() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given("a.b.c", 100))
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        reject_token(env, requested, await get_token(env, requested))
        provider.publish(b"", "500 Never")
        await trio.sleep(1)
        assert await get_token(env, requested) == "a.b.c"
        assert requested.cache.is_rejected
        provider.publish(given("d.e.f", 100))
        assert await get_token(env, requested) == "a.b.c", "nobody is asked twice in a moment"
        await trio.sleep(1)
        assert await get_token(env, requested) == "d.e.f"
        reject_token(env, requested, "d.e.f")
        provider.publish(b"", "500 Never")
        await trio.sleep(101)
        with pytest.raises(TokenUnavailable, match="500"):
            await get_token(env, requested)

    with_provider(main)


def test_concurrent_logins_use_cached_token_during_refresh() -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given("a.b.c", 100))
        requested, connect, shown = (
            BearerTokenSource("http://idp/token", "me", "my-secret"),
            env.net.connect,
            list[str](),
        )
        assert await get_token(env, requested) == "a.b.c"
        await trio.sleep(81)

        async def absent(host: str, port: int) -> Any:
            await trio.sleep_forever()

        async def dials() -> None:
            with trio.move_on_after(1):  # the peer may be gone by then
                shown.append(await get_token(env, requested))

        env.net.connect = absent
        for _ in range(3):
            nursery.start_soon(dials)
        await trio.sleep(0.05)
        assert shown == ["a.b.c"] * 2
        await trio.sleep(1)
        env.net.connect = connect
        provider.publish(given("d.e.f", 100))
        assert await get_token(env, requested) == "d.e.f"

    with_provider(main)


class RejectingLogin:
    """Server side of a failing login."""

    def __init__(self, code: int, challenge: bytes) -> None:
        self.answers = [SaslHandshakeResponse(0, ["OAUTHBEARER"])]
        self.answers += [SaslAuthenticateResponse(code, None, challenge), SaslAuthenticateResponse(code, None, b"")]

    async def call(self, request: Any, version: int | None = None) -> Any:
        return self.answers.pop(0)

    def version_for(self, key: ApiKey, at_most: int = 32767) -> int:
        return 2


@pytest.mark.parametrize(("code", "challenge"), [(58, b""), (0, b"{}")])
def test_rejected_login_requests_a_new_token(code: int, challenge: bytes) -> None:
    async def main(env: Any, provider: JwksProvider, nursery: trio.Nursery) -> None:
        provider.publish(given("a.b.c", 3_600))
        requested = BearerTokenSource("http://idp/token", "me", "my-secret")
        login = SaslLogin("OAUTHBEARER", "", "", token_source=requested)
        with pytest.raises(AuthenticationFailed):
            await authenticate(RejectingLogin(code, challenge), login, env, "b")
        await trio.sleep(1)
        provider.publish(given("d.e.f", 3_600))
        assert await get_token(env, requested) == "d.e.f"

    with_provider(main)
