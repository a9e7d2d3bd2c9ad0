"""What each listener asks of who comes, out of the node's settings: TLS, a login, or both. Loaded where any asks.

A setting may stand with ``listener.name.<name>.`` before it, and a JAAS line also with the mechanism; the nearest wins
(item 301). On a listener with a login only the listener's own ``ssl.client.auth`` counts (305).

Source: ``ChannelBuilders.java``, ``JaasContext.java``, ``SaslConfigs.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.addresses import Refusal
from ottla.broker.auth.exchange import Begin, Exchange
from ottla.broker.auth.plain import PlainExchange, users_of
from ottla.broker.auth.principals import BadRule, NameOf, name_by
from ottla.broker.auth.scram import KeysOf, ScramExchange, TokenOf, no_tokens
from ottla.broker.auth.strangers import Strangers
from ottla.controller.broker_keys import BROKER_KEYS
from ottla.peers.access import OPEN, Access
from ottla.peers.jaas import BadJaas, LoginModule, parse_jaas
from ottla.peers.scram import TYPES
from ottla.peers.security import MECHANISMS, PLAIN, BadAccess, Get, login_of, tls_of
from ottla.world.env import Env
from ottla.world.tls import Tls

if TYPE_CHECKING:
    from ottla.broker.auth.audit import Audit
    from ottla.broker.auth.kerberos_settings import Kerberos
    from ottla.broker.auth.token_settings import Tokens

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
SPOKEN = (*MECHANISMS, OAUTHBEARER, GSSAPI)
"""What can be logged in with at a listener."""
MAX_REAUTH = "connections.max.reauth.ms"


def setting(values: Mapping[str, str], listener: str) -> Get:
    """How a setting is looked up for one listener: its own, the node's, Kafka's default."""
    prefix = f"listener.name.{listener.lower()}."

    def get(name: str) -> str | None:
        own = values.get(prefix + name, values.get(name))
        if own is None and name in BROKER_KEYS:
            own = BROKER_KEYS[name].default
        return own

    return get


def _mechanism(get: Get, mechanism: str, name: str) -> str | None:
    """A setting of one mechanism."""
    return get(f"{mechanism.lower()}.{name}")


def _enabled(get: Get) -> list[str]:
    return [x.strip() for x in (get(ENABLED) or "").split(",") if x.strip()]


def _jaas(get: Get, mechanism: str) -> LoginModule | None:
    text = _mechanism(get, mechanism, JAAS)
    return None if text is None else parse_jaas(text)


@dataclass(frozen=True, slots=True)
class Door:
    """One listener's."""

    tls: Tls | None
    asks_login: bool
    passwords: Mapping[str, bytes] | None
    """Their digests, of PLAIN; None where it is not enabled."""
    enabled: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]
    failure_delay_ms: int
    max_receive_bytes: int
    name_of: NameOf
    keys_of: KeysOf
    token_of: TokenOf = no_tokens
    tokens: Tokens | None = None
    """Who takes tokens; None where OAUTHBEARER is not enabled."""
    kerberos: Kerberos | None = None
    """Who takes tickets; None where GSSAPI is not enabled."""
    strangers: Strangers = field(default_factory=Strangers)
    audit: Audit | None = None
    """Who writes down logins; None: nobody."""

    def __repr__(self) -> str:
        return f"Door(tls={self.tls}, enabled={self.enabled})"

    def mechanisms(self, env: Env) -> Mapping[str, Begin]:
        """What begins a login, by mechanism."""
        out: dict[str, Begin] = {}
        for name in self.enabled:
            if name == PLAIN:
                out[name] = partial(PlainExchange, self.passwords or {})
            elif self.tokens is not None and name == OAUTHBEARER:
                out[name] = partial(_bearer, self.tokens)
            elif self.kerberos is not None and name == GSSAPI:
                out[name] = self.kerberos.begin
            else:
                out[name] = partial(self._scram, env, name)
        return out

    def _scram(self, env: Env, mechanism: str) -> ScramExchange:
        return ScramExchange(mechanism, (env.uuid() + env.uuid()).hex(), self.keys_of, self.token_of)


def _bearer(tokens: Tokens) -> Exchange:
    from ottla.broker.auth.bearer import BearerExchange

    return BearerExchange(tokens.reads)


def look_at_keys(values: Mapping[str, str], listener: str, protocol: str, env: Env) -> None:
    """See whether the keys a listener takes tickets by are there: better at the start than at the first client.

    Raises:
        BadKeytab: they cannot be used; BadAccess, BadJaas, BadRule: settings that cannot be.
    """
    get = setting(values, listener)
    if protocol.startswith("SASL") and GSSAPI in _enabled(get):
        _kerberos(get, env)


def tls_for(values: Mapping[str, str], listener: str, protocol: str) -> Tls | None:
    """TLS of a listener; None where it speaks none.

    Raises:
        BadAccess: settings that cannot stand together.
    """
    if not protocol.endswith("SSL"):
        return None
    get = setting(values, listener)

    def own(name: str) -> str | None:
        if name == "ssl.client.auth" and protocol == "SASL_SSL":
            return values.get(f"listener.name.{listener.lower()}.{name}")
        return get(name)

    return tls_of(own)


def door_of(
    values: Mapping[str, str],
    listener: str,
    protocol: str,
    keys_of: KeysOf,
    env: Env | None = None,
    token_of: TokenOf = no_tokens,
    audit: Audit | None = None,
) -> Door | None:
    """What a listener asks for; None where it lets everybody in. ``env``: where OAUTHBEARER or GSSAPI is enabled.

    Raises:
        BadAccess, BadJaas, BadRule: settings that cannot be; BadKeytab: keys that cannot be used.
    """
    if protocol == "PLAINTEXT":
        return None
    get = setting(values, listener)
    asks_login = protocol.startswith("SASL")
    enabled = tuple(x for x in _enabled(get) if x in SPOKEN) if asks_login else ()
    plain = _jaas(get, PLAIN) if PLAIN in enabled else None
    return Door(
        tls=tls_for(values, listener, protocol),
        asks_login=asks_login,
        passwords=users_of(plain.options) if plain is not None else None,
        enabled=enabled,
        max_reauth_ms={x: int(_mechanism(get, x, MAX_REAUTH) or get(MAX_REAUTH) or 0) for x in enabled},
        failure_delay_ms=int(get("connection.failed.authentication.delay.ms") or 0),
        max_receive_bytes=int(get("sasl.server.max.receive.size") or 0),
        name_of=name_by(get("ssl.principal.mapping.rules") or "DEFAULT"),
        keys_of=keys_of,
        token_of=token_of,
        tokens=_tokens(get, env) if OAUTHBEARER in enabled else None,
        audit=audit,
        kerberos=_kerberos(get, env) if GSSAPI in enabled else None,
    )


def _tokens(get: Get, env: Env | None) -> Tokens:
    from ottla.broker.auth.token_settings import tokens_of  # few nodes take tokens

    assert env is not None, "keys are fetched, and tokens end"
    return tokens_of(partial(_of_bearer, get), env)


def _kerberos(get: Get, env: Env | None) -> Kerberos:
    from ottla.broker.auth.kerberos_settings import kerberos_of  # few nodes take tickets

    assert env is not None, "keys lie in a file"
    return kerberos_of(get, _mechanism(get, GSSAPI, JAAS), env)


def _of_bearer(get: Get, name: str) -> str | None:
    """A setting of OAUTHBEARER: with the mechanism before it, or without."""
    return get(f"{OAUTHBEARER.lower()}.{name}") or get(name)


def access_to(values: Mapping[str, str], listener: str, protocol: str, mechanism: str) -> Access:
    """What this node needs where it speaks to others of its kind: at their listener of this name.

    Raises:
        BadAccess: settings that cannot be.
    """
    if protocol == "PLAINTEXT":
        return OPEN
    get = setting(values, listener)
    tls = tls_of(get) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Access(tls)
    own = lambda name: _mechanism(get, mechanism, name) or get(name)  # noqa: E731 - one line says it
    return Access(tls, login_of(mechanism, _mechanism(get, mechanism, JAAS), own))


def refusals(values: Mapping[str, str], listeners: Mapping[str, str]) -> Iterator[Refusal]:
    """What a node cannot start with; ``listeners``: protocols by the names of those it serves."""
    for listener, protocol in listeners.items():
        if protocol == "PLAINTEXT":
            continue
        get = setting(values, listener)
        prefix = f"listener.name.{listener.lower()}."
        if protocol.startswith("SASL"):
            yield from _login_refusals(get, prefix)
        for key, read in _READ.items():
            try:
                read(values, listener, protocol)
            except (BadAccess, BadRule) as error:
                yield key, str(error)
        if protocol.endswith("SSL") and not get("ssl.keystore.location") and not get("ssl.keystore.key"):
            yield (
                "ssl.keystore.location",
                f"listener {listener} needs a key and a certificate, here or in ssl.keystore.key",
            )


def _login_refusals(get: Get, prefix: str) -> Iterator[Refusal]:
    enabled = _enabled(get)
    for mechanism in enabled:
        if mechanism not in SPOKEN:
            yield ENABLED, f"{mechanism} is not spoken here yet: name some of {', '.join(SPOKEN)}"
    if not enabled:
        yield ENABLED, f"name some of {', '.join(SPOKEN)}"
    if OAUTHBEARER in enabled:
        from ottla.broker.auth.token_settings import refusals as refused

        yield from ((f"{prefix}{OAUTHBEARER.lower()}.{key}", why) for key, why in refused(partial(_of_bearer, get)))
    if GSSAPI in enabled:
        from ottla.broker.auth import kerberos_settings

        yield from kerberos_settings.refusals(get, f"{prefix}{GSSAPI.lower()}.{JAAS}", _mechanism(get, GSSAPI, JAAS))
    for mechanism in (x for x in enabled if x in MECHANISMS):
        key = f"{prefix}{mechanism.lower()}.{JAAS}"
        try:
            module = _jaas(get, mechanism)
        except BadJaas as error:
            yield key, str(error)
            continue
        if mechanism not in TYPES and (module is None or not users_of(module.options)):
            yield key, 'is where the users of PLAIN stand: PlainLoginModule required user_NAME="password";'


_READ: dict[str, Callable[[Mapping[str, str], str, str], object]] = {
    "ssl.principal.mapping.rules": lambda values, name, _: name_by(
        setting(values, name)("ssl.principal.mapping.rules") or "DEFAULT"
    ),
    "ssl.keystore.location": tls_for,
}
