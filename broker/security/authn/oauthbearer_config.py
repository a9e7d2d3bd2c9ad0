"""OAUTHBEARER settings of a listener: validator, keys and required claims.

Only a listener with a configured callback handler accepts tokens: Kafka's default would accept unsigned tokens.

Source: ``OAuthBearerValidatorCallbackHandler.java``, ``BrokerJwtValidator.java``, ``ConfigurationUtils.java``,
``JaasOptionsUtils.java`` (apache/kafka 4.3.1).

From KIP-255, KIP-768.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from ottla.broker.config.listener_config import ConfigProblem
from ottla.broker.security.authn.jwks import JsonWebKeySet, JwksRefresh
from ottla.broker.security.authn.jwt_validator import BrokerJwtValidator, JwtRequirements, UnsecuredJwtValidator
from ottla.broker.security.authn.oauthbearer_server import TokenValidator
from ottla.client.http_client import is_file_url, is_http_url
from ottla.client.jaas import InvalidJaasConfig, parse_jaas
from ottla.client.security_config import InvalidSecurityConfig, SettingLookup, parse_tls
from ottla.env.env import Env
from ottla.env.tls import TlsConfig

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR_HANDLERS = (
    _PACKAGE + "OAuthBearerValidatorCallbackHandler",
    _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",  # the class name before Kafka 4.0
)
UNSECURED_HANDLER = _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
CALLBACK_HANDLER = "sasl.server.callback.handler.class"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
JAAS_CONFIG = "sasl.jaas.config"
_INTEGER_MINIMUMS = {
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": 1,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 0,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 0,
    "sasl.oauthbearer.clock.skew.seconds": 0,
}
"""Minimum of each integer setting."""


class OAuthBearerConfig(NamedTuple):
    """Token validator and keys of one listener's OAUTHBEARER mechanism."""

    validator: TokenValidator
    jwks: JsonWebKeySet | None
    """Key set whose `JsonWebKeySet.run` refreshes the keys; None if tokens are unsigned."""


def _options(get: SettingLookup) -> Mapping[str, str]:
    """Return the options of the JAAS config, empty without one. Raises InvalidJaasConfig."""
    text = get(JAAS_CONFIG)
    return {} if text is None else parse_jaas(text).options


def _jwks_tls(options: Mapping[str, str]) -> TlsConfig | None:
    """Return the TLS settings in the JAAS options for an https JWKS URL. Raises InvalidSecurityConfig.

    None if there is no option ``ssl.*``: the authorities of the system are trusted then. The URL is not looked at.
    """
    return parse_tls(options.get) if any(name.startswith("ssl.") for name in options) else None


def load_oauthbearer_config(get: SettingLookup, env: Env) -> OAuthBearerConfig:
    """Load the OAUTHBEARER configuration of a listener; ``get`` looks up its settings. Keys are not fetched yet.

    Raises:
        InvalidJaasConfig, InvalidSecurityConfig, ValueError: invalid settings.
    """
    options = _options(get)
    if get(CALLBACK_HANDLER) == UNSECURED_HANDLER:
        return OAuthBearerConfig(UnsecuredJwtValidator(options, env.now_ms), None)
    every_ms, backoff_ms, max_backoff_ms, skew_s = (_read_integer(get, name) for name in _INTEGER_MINIMUMS)
    keys = JsonWebKeySet(
        env, get(JWKS_URL) or "", JwksRefresh(every_ms, backoff_ms, max_backoff_ms), _jwks_tls(options)
    )
    wanted = JwtRequirements(
        frozenset(x.strip() for x in (get("sasl.oauthbearer.expected.audience") or "").split(",") if x.strip()),
        (get("sasl.oauthbearer.expected.issuer") or "").strip() or None,
        skew_s,
        get("sasl.oauthbearer.scope.claim.name") or "scope",
        get("sasl.oauthbearer.sub.claim.name") or "sub",
    )
    return OAuthBearerConfig(BrokerJwtValidator(wanted, keys, env.now_ms), keys)


def _read_integer(get: SettingLookup, name: str) -> int:
    value = int(get(name) or "")
    if value < _INTEGER_MINIMUMS[name]:
        raise ValueError(f"{value} is less than {_INTEGER_MINIMUMS[name]}")
    return value


def find_oauthbearer_problems(get: SettingLookup) -> Iterator[ConfigProblem]:
    """Yield (setting name, problem) for each invalid OAUTHBEARER setting of a listener, and for missing libraries.

    An invalid JAAS config is the only problem reported.
    """
    handler = get(CALLBACK_HANDLER)
    try:
        options = _options(get)
        _jwks_tls(options)
    except (InvalidJaasConfig, InvalidSecurityConfig) as error:
        yield JAAS_CONFIG, str(error)
        return
    if handler == UNSECURED_HANDLER:
        try:
            UnsecuredJwtValidator(options, lambda: 0)
        except ValueError as error:
            yield JAAS_CONFIG, str(error)
    elif handler in VALIDATOR_HANDLERS:
        yield from _validator_problems(get)
    else:
        known = f"{VALIDATOR_HANDLERS[0]}, or, for unsigned tokens, {UNSECURED_HANDLER}"
        yield CALLBACK_HANDLER, f"OAUTHBEARER requires a validator of tokens: {known}"


def _validator_problems(get: SettingLookup) -> Iterator[ConfigProblem]:
    url = get(JWKS_URL) or ""
    if not (is_http_url(url) or is_file_url(url)):
        yield JWKS_URL, "URL of the JWKS expected: https://..., http://... or file:///..."
    for name, least in _INTEGER_MINIMUMS.items():
        try:
            _read_integer(get, name)
        except ValueError:
            yield name, f"is a whole number from {least} on"
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        yield CALLBACK_HANDLER, "needs the libraries PyJWT and cryptography: pip install 'ottla[oauth]'"
