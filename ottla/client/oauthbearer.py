"""Tokens for OAUTHBEARER logins: read from a file, or requested from a token endpoint with client id and secret.

Behaviour: a file is read again for each login. Otherwise client id and secret are sent to the token endpoint, and the
``access_token`` or ``id_token`` in its response is used until 80 % of its lifetime have passed. The lifetime is the
shorter of the response's ``expires_in`` and the token's ``exp``; a token without an expiry time is used once. Only a
login requests a token: unlike in Kafka, no thread renews it. If the request fails, or a broker rejects the token,
logins within 100 ms send no request, and twice as long each time, up to 10 s; without a valid token they fail at once.

Source: ``FileJwtRetriever.java``, ``ClientSecretRequestFormatter.java``, ``HttpJwtRetriever.java``,
``JwtResponseParser.java``, ``OAuthBearerSaslClient.java``, ``ExpiringCredentialRefreshingLogin.java`` and
``SaslConfigs.java`` for the times (apache/kafka 4.3.1).

From KIP-255, KIP-768; RFC 6749, RFC 7628.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, unquote, urlsplit

from ottla.client.connection_security import BearerTokenSource, CachedToken
from ottla.client.http_client import FORM, HttpFetchError, http_post, is_file_url, is_http_url
from ottla.client.jaas import JaasLoginModule
from ottla.env.disk import read_file
from ottla.env.env import Env
from ottla.env.tls import TlsConfig

CALLBACK_HANDLER_KEY = "sasl.login.callback.handler.class"
TOKEN_ENDPOINT_KEY = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
CALLBACK_HANDLERS = (
    _PACKAGE + "OAuthBearerLoginCallbackHandler",
    _PACKAGE + "secured.OAuthBearerLoginCallbackHandler",  # class name until Kafka 4.0
)
SETTINGS = (
    CALLBACK_HANDLER_KEY,
    TOKEN_ENDPOINT_KEY,
    *(f"sasl.oauthbearer.client.credentials.client.{x}" for x in ("id", "secret")),
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
)
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
MIN_BACKOFF_MS, MAX_BACKOFF_MS = 100.0, 10_000.0
"""Kafka's defaults of ``sasl.login.retry.backoff.ms`` and ``sasl.login.retry.backoff.max.ms``."""
RENEW_AT = 0.8
"""Fraction of a token's lifetime after which it is renewed (``sasl.login.refresh.window.factor``)."""
_FOREVER_S = 1e11
"""Upper bound in seconds of valid times, also of times since 1970."""
_SECRET = {
    "sasl.oauthbearer.client.credentials.client.id": "clientId",
    "sasl.oauthbearer.client.credentials.client.secret": "clientSecret",
}


class TokenUnavailable(OSError):
    """Raised if no OAUTHBEARER token is available. The message contains neither tokens nor secrets."""


def parse_token_source(values: Mapping[str, str], module: JaasLoginModule, tls: TlsConfig | None) -> BearerTokenSource:
    """Return the OAUTHBEARER token source of a client's settings: a file, or a token endpoint with id and secret.

    ``values``: setting values by name; ``module``: the JAAS login module; ``tls``: TLS settings in its options, None
    for the defaults; not used for a file. Nothing is read or requested yet.

    Raises:
        ValueError: a setting is missing or invalid, or names another source; the message is one line without secrets.
    """
    if values.get(CALLBACK_HANDLER_KEY) not in CALLBACK_HANDLERS:
        raise ValueError(
            f"OAUTHBEARER needs {CALLBACK_HANDLER_KEY}={CALLBACK_HANDLERS[0]}: other handlers are not supported"
        )
    url = values.get(TOKEN_ENDPOINT_KEY, "")
    if is_file_url(url):
        return BearerTokenSource(url)
    if not is_http_url(url):
        raise ValueError(f"{TOKEN_ENDPOINT_KEY} must be the URL of tokens: file:///..., https://... or http://...")
    found = [values.get(name) or module.options.get(option, "") for name, option in _SECRET.items()]
    if not all(x.strip() for x in found):
        raise ValueError(f"{' and '.join(_SECRET)} are needed for {TOKEN_ENDPOINT_KEY}")
    client_id, secret = (x.strip() for x in found)
    scope = (values.get("sasl.oauthbearer.scope") or module.options.get("scope", "")).strip()
    if values.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true":
        client_id, secret, scope = quote_plus(client_id), quote_plus(secret), quote_plus(scope)
    if any(not x.isprintable() for x in (client_id, secret, scope)):
        raise ValueError(f"{' and '.join(_SECRET)} cannot be sent")
    return BearerTokenSource(url, client_id, secret, scope, tls)


async def get_token(env: Env, source: BearerTokenSource) -> str:
    """Return a token for a login: the content of the file, the cached token, or a new one from the token endpoint.

    A new token is cached; a failed request delays the next one. A cached token that is due for renewal, or that a
    broker rejected, is returned until it expires if no new one is available.

    Raises:
        TokenUnavailable: the file or the endpoint provides no token.
    """
    if is_file_url(source.url):
        path = unquote(urlsplit(source.url).path)
        try:
            text = read_file(env.disk, path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenUnavailable(f"{path}: {getattr(error, 'strerror', None) or 'no token'}") from None
        return _validate_token(text, source)
    kept, now_ms = source.cache, env.monotonic_ms()
    if now_ms < (kept.not_before_ms if kept.is_rejected else kept.renew_ms):
        return kept.text
    if now_ms >= kept.not_before_ms:
        if now_ms < kept.expiry_ms:
            # one task requests a token at a time: the others use the cached one, or wait and request one if that failed
            _back_off(env, kept)
        try:
            return _cache_token(env, kept, *await _request_token(env, source))
        except TokenUnavailable as error:
            kept.error = str(error)
            _back_off(env, kept)
    if now_ms < kept.expiry_ms:
        # a due refresh, or a rejected token: other connections use the token until a new one is available
        return kept.text
    raise TokenUnavailable(kept.error)


def reject_token(env: Env, source: BearerTokenSource, token: str) -> None:
    """Mark the cached token as rejected by a broker, so that a new one is requested after the backoff.

    No effect if ``token`` is not the cached one any more.
    """
    kept = source.cache
    if token == kept.text and not kept.is_rejected:
        kept.is_rejected = True
        _back_off(env, kept)


def _back_off(env: Env, kept: CachedToken) -> None:
    """Double the backoff of token requests up to its maximum and set the earliest time of the next request.

    Of requests that fail at the same time, only the first doubles it.
    """
    now_ms = env.monotonic_ms()
    if now_ms >= kept.not_before_ms:
        kept.backoff_ms = min(max(2 * kept.backoff_ms, MIN_BACKOFF_MS), MAX_BACKOFF_MS)
        kept.not_before_ms = now_ms + kept.backoff_ms


def _cache_token(env: Env, kept: CachedToken, text: str, good_for_ms: float) -> str:
    now_ms = env.monotonic_ms()
    if not kept.is_rejected:
        kept.backoff_ms = 0.0
    kept.text, kept.is_rejected = text, False
    kept.renew_ms, kept.expiry_ms = now_ms + RENEW_AT * good_for_ms, now_ms + good_for_ms
    return text


def _validate_token(text: str, source: BearerTokenSource) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise TokenUnavailable(f"response of {source.url} is not a token")
    return text


async def _request_token(env: Env, source: BearerTokenSource) -> tuple[str, float]:
    """Request a token from the token endpoint; return it with its lifetime in ms, 0 if it has no expiry time.

    Raises:
        TokenUnavailable: the request failed, or the response has no valid token.
    """
    basic = b64encode(f"{source.client_id}:{source.secret}".encode()).decode()
    form = "grant_type=client_credentials" + (f"&scope={source.scope}" if source.scope else "")
    headers = {"Authorization": f"Basic {basic}", "Cache-Control": "no-cache"}
    try:
        answer = json.loads(await http_post(env, source.url, source.tls, headers, form.encode(), FORM))
    except (HttpFetchError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, HttpFetchError) else "no JSON"
        raise TokenUnavailable(f"no token from {source.url}: {why}") from None
    answer = answer if isinstance(answer, dict) else {}
    found = answer.get("access_token") or answer.get("id_token")
    token = _validate_token(found.strip() if isinstance(found, str) else "", source)
    times_s = (_number(answer.get("expires_in")), _number(_expiry_claim(token)) - env.now_ms() / 1000)
    return token, 1000 * max(min((x for x in times_s if x < _FOREVER_S), default=0.0), 0.0)


def _number(value: Any) -> float:
    """Return ``value`` as a time in seconds; 2 * `_FOREVER_S` if it is not a valid number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 2 * _FOREVER_S
    return number if abs(number) < _FOREVER_S else 2 * _FOREVER_S


def _expiry_claim(token: str) -> Any:
    """Return the ``exp`` claim of an unverified JWT in seconds since 1970; None if malformed or without the claim."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=="))
    except (ValueError, RecursionError):
        return None
    return claims.get("exp") if isinstance(claims, dict) else None


def initial_response(token: str) -> bytes:
    """Return the client's initial OAUTHBEARER response with the token (RFC 7628)."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
