"""What a listener's settings say of tokens: who checks them, by whose keys, and what they must say.

Only a listener whose handler is named takes any: Kafka's default would take tokens that anybody can make.

Source: ``OAuthBearerValidatorCallbackHandler.java``, ``BrokerJwtValidator.java``, ``ConfigurationUtils.java``,
``JaasOptionsUtils.java`` (apache/kafka 4.3.1).

From KIP-255, KIP-768.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from ottla.broker.addresses import Refusal
from ottla.broker.auth.bearer import Reads
from ottla.broker.auth.jwks import Keys, Refresh
from ottla.broker.auth.web_tokens import Signed, Unsecured, Wanted
from ottla.peers.fetching import is_address, is_file
from ottla.peers.jaas import BadJaas, parse_jaas
from ottla.peers.security import BadAccess, Get, tls_of
from ottla.world.env import Env
from ottla.world.tls import Tls

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
SIGNED = (
    _PACKAGE + "OAuthBearerValidatorCallbackHandler",
    _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",  # its name until 4.0
)
UNSECURED = _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
HANDLER = "sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"
JAAS = "sasl.jaas.config"
_WHOLE = {
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": 1,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 0,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 0,
    "sasl.oauthbearer.clock.skew.seconds": 0,
}
"""Whole numbers, and the least each may be."""


class Tokens(NamedTuple):
    """Of one listener."""

    reads: Reads
    keys: Keys | None
    """To be kept fresh; None where tokens are not signed."""


def _options(get: Get) -> Mapping[str, str]:
    """Those of the JAAS line; there need not be one. Raises BadJaas."""
    text = get(JAAS)
    return {} if text is None else parse_jaas(text).options


def _trusted(options: Mapping[str, str]) -> Tls | None:
    """How an https address is trusted, where the JAAS line says so. Raises BadAccess."""
    return tls_of(options.get) if any(name.startswith("ssl.") for name in options) else None


def tokens_of(get: Get, env: Env) -> Tokens:
    """Who takes a listener's tokens; ``get``: as the listener's settings have it, those `refusals` lets through.

    Raises:
        BadJaas, BadAccess, ValueError: they cannot be.
    """
    options = _options(get)
    if get(HANDLER) == UNSECURED:
        return Tokens(Unsecured(options, env.now_ms), None)
    every_ms, backoff_ms, max_backoff_ms, skew_s = (_whole(get, name) for name in _WHOLE)
    keys = Keys(env, get(URL) or "", Refresh(every_ms, backoff_ms, max_backoff_ms), _trusted(options))
    wanted = Wanted(
        frozenset(x.strip() for x in (get("sasl.oauthbearer.expected.audience") or "").split(",") if x.strip()),
        (get("sasl.oauthbearer.expected.issuer") or "").strip() or None,
        skew_s,
        get("sasl.oauthbearer.scope.claim.name") or "scope",
        get("sasl.oauthbearer.sub.claim.name") or "sub",
    )
    return Tokens(Signed(wanted, keys, env.now_ms), keys)


def _whole(get: Get, name: str) -> int:
    value = int(get(name) or "")
    if value < _WHOLE[name]:
        raise ValueError(f"{value} is less than {_WHOLE[name]}")
    return value


def refusals(get: Get) -> Iterator[Refusal]:
    """What a listener cannot take tokens with: a setting's name and why."""
    handler = get(HANDLER)
    try:
        options = _options(get)
        _trusted(options)
    except (BadJaas, BadAccess) as error:
        yield JAAS, str(error)
        return
    if handler == UNSECURED:
        try:
            Unsecured(options, lambda: 0)
        except ValueError as error:
            yield JAAS, str(error)
    elif handler in SIGNED:
        yield from _signed_refusals(get)
    else:
        known = f"{SIGNED[0]}, or, for tokens that anybody can make, {UNSECURED}"
        yield HANDLER, f"OAUTHBEARER needs to know who checks tokens: {known}"


def _signed_refusals(get: Get) -> Iterator[Refusal]:
    url = get(URL) or ""
    if not (is_address(url) or is_file(url)):
        yield URL, "is where the keys stand that sign tokens: https://..., http://... or file:///..."
    for name, least in _WHOLE.items():
        try:
            _whole(get, name)
        except ValueError:
            yield name, f"is a whole number from {least} on"
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        yield HANDLER, "needs the libraries PyJWT and cryptography: pip install 'ottla[oauth]'"
