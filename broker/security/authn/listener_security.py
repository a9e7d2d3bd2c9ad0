"""Security settings of a listener: TLS, SASL mechanisms and principal mapping. Loaded only if a listener has any.

Also the checks of these settings at startup, and those of outbound connections to listeners of other nodes.

A setting may have the prefix ``listener.name.<name>.``, a JAAS config also the mechanism; the most specific one applies
(S-301). On a SASL_SSL listener ``ssl.client.auth`` applies only with the listener prefix (305).

Source: ``ChannelBuilders.java``, ``JaasContext.java``, ``SaslConfigs.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.config.listener_config import ConfigProblem
from ottla.broker.security.authn.oauthbearer_server import OAuthBearerSaslServer
from ottla.broker.security.authn.plain_server import PlainSaslServer, parse_users
from ottla.broker.security.authn.pre_auth_memory import PreAuthMemoryLimit
from ottla.broker.security.authn.sasl_server import SaslServer, SaslServerFactory
from ottla.broker.security.authn.scram_server import (
    DelegationTokenLookup,
    ScramKeyLookup,
    ScramSaslServer,
    no_delegation_tokens,
)
from ottla.broker.security.authn.ssl_principal_mapper import InvalidMappingRule, PrincipalMapper, parse_mapping_rules
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.client.jaas import InvalidJaasConfig, JaasLoginModule, parse_jaas
from ottla.client.scram import MECHANISM_TYPES
from ottla.client.security_config import MECHANISMS, PLAIN, InvalidSecurityConfig, SettingLookup, parse_login, parse_tls
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.env.env import Env
from ottla.env.tls import TlsConfig

if TYPE_CHECKING:
    from ottla.broker.security.authn.kerberos_config import KerberosConfig
    from ottla.broker.security.authn.oauthbearer_config import OAuthBearerConfig
    from ottla.broker.security.authz.audit_log import AuditLog

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
JAAS_CONFIG = "sasl.jaas.config"
CALLBACK_HANDLER = "sasl.server.callback.handler.class"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
SUPPORTED_MECHANISMS = (*MECHANISMS, OAUTHBEARER, GSSAPI)
"""Supported SASL mechanisms of a listener."""
MAX_REAUTH = "connections.max.reauth.ms"


def listener_setting(values: Mapping[str, str], listener: str) -> SettingLookup:
    """Return the function that looks up a listener's settings by name.

    It returns the value with the prefix of the listener, else that without, else Kafka's default, else None.
    """
    prefix = f"listener.name.{listener.lower()}."

    def get(name: str) -> str | None:
        own = values.get(prefix + name, values.get(name))
        if own is None and name in BROKER_KEYS:
            own = BROKER_KEYS[name].default
        return own

    return get


def _mechanism_setting(get: SettingLookup, mechanism: str, name: str) -> str | None:
    """Return the setting with the prefix of a SASL mechanism; None if it is not set with that prefix."""
    return get(f"{mechanism.lower()}.{name}")


def _enabled_mechanisms(get: SettingLookup) -> list[str]:
    return [x.strip() for x in (get(ENABLED_MECHANISMS) or "").split(",") if x.strip()]


def _jaas(get: SettingLookup, mechanism: str) -> JaasLoginModule | None:
    text = _mechanism_setting(get, mechanism, JAAS_CONFIG)
    return None if text is None else parse_jaas(text)


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """Security settings of one listener: TLS, SASL mechanisms with their credentials, limits, principal mapping."""

    tls: TlsConfig | None
    requires_sasl: bool
    plain_digests: Mapping[str, bytes] | None
    """SHA-256 digests of the passwords of PLAIN users, by user; None if PLAIN is not enabled."""
    enabled_mechanisms: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]
    failure_delay_ms: int
    max_receive_bytes: int
    principal_mapper: PrincipalMapper
    scram_keys: ScramKeyLookup
    delegation_tokens: DelegationTokenLookup = no_delegation_tokens
    oauthbearer: OAuthBearerConfig | None = None
    """Token validator and keys; None if OAUTHBEARER is not enabled."""
    kerberos: KerberosConfig | None = None
    """Keytab and principal mapping; None if GSSAPI is not enabled."""
    pre_auth_memory: PreAuthMemoryLimit = field(default_factory=PreAuthMemoryLimit)
    audit: AuditLog | None = None
    """Audit log of authentications; None if disabled."""

    def __repr__(self) -> str:
        return f"ListenerSecurity(tls={self.tls}, enabled={self.enabled_mechanisms})"

    def sasl_server_factories(self, env: Env) -> Mapping[str, SaslServerFactory]:
        """Return factories of the server side of an authentication, by enabled mechanism."""
        out: dict[str, SaslServerFactory] = {}
        for name in self.enabled_mechanisms:
            if name == PLAIN:
                out[name] = partial(PlainSaslServer, self.plain_digests or {})
            elif self.oauthbearer is not None and name == OAUTHBEARER:
                out[name] = partial(_create_oauthbearer_server, self.oauthbearer)
            elif self.kerberos is not None and name == GSSAPI:
                out[name] = self.kerberos.create_server
            else:
                out[name] = partial(self._scram, env, name)
        return out

    def _scram(self, env: Env, mechanism: str) -> ScramSaslServer:
        return ScramSaslServer(mechanism, (env.uuid() + env.uuid()).hex(), self.scram_keys, self.delegation_tokens)


def _create_oauthbearer_server(tokens: OAuthBearerConfig) -> SaslServer:
    return OAuthBearerSaslServer(tokens.validator)


def check_keytab(values: Mapping[str, str], listener: str, protocol: str, env: Env) -> None:
    """Check at startup that the keytab of a listener with GSSAPI is usable; do nothing for other listeners.

    Raises:
        InvalidKeytab: the keytab cannot be used.
        InvalidSecurityConfig, InvalidJaasConfig, InvalidMappingRule: invalid settings.
    """
    get = listener_setting(values, listener)
    if protocol.startswith("SASL") and GSSAPI in _enabled_mechanisms(get):
        _load_kerberos(get, env)


def listener_tls(values: Mapping[str, str], listener: str, protocol: str) -> TlsConfig | None:
    """Return the TLS settings of a listener; None if its protocol has no TLS.

    Raises:
        InvalidSecurityConfig: invalid or contradicting settings.
    """
    if not protocol.endswith("SSL"):
        return None
    get = listener_setting(values, listener)

    def own(name: str) -> str | None:
        if name == "ssl.client.auth" and protocol == "SASL_SSL":
            return values.get(f"listener.name.{listener.lower()}.{name}")
        return get(name)

    return parse_tls(own)


def build_listener_security(
    values: Mapping[str, str],
    listener: str,
    protocol: str,
    keys_of: ScramKeyLookup,
    env: Env | None = None,
    token_of: DelegationTokenLookup = no_delegation_tokens,
    audit: AuditLog | None = None,
) -> ListenerSecurity | None:
    """Return the security settings of a listener; None for PLAINTEXT.

    Args:
        values: settings of the node.
        listener: name of the listener.
        protocol: security protocol of the listener, such as ``SASL_SSL``. Enabled mechanisms that are not supported are
            left out.
        keys_of: lookup of SCRAM credentials.
        env: required for OAUTHBEARER and GSSAPI.
        token_of: lookup of delegation tokens.
        audit: audit log of authentications; None if disabled.

    Raises:
        InvalidSecurityConfig, InvalidJaasConfig, InvalidMappingRule, ValueError: invalid settings.
        InvalidKeytab: the keytab cannot be used.
    """
    if protocol == "PLAINTEXT":
        return None
    get = listener_setting(values, listener)
    requires_sasl = protocol.startswith("SASL")
    enabled = tuple(x for x in _enabled_mechanisms(get) if x in SUPPORTED_MECHANISMS) if requires_sasl else ()
    plain = _jaas(get, PLAIN) if PLAIN in enabled else None
    return ListenerSecurity(
        tls=listener_tls(values, listener, protocol),
        requires_sasl=requires_sasl,
        plain_digests=parse_users(plain.options) if plain is not None else None,
        enabled_mechanisms=enabled,
        max_reauth_ms={x: int(_mechanism_setting(get, x, MAX_REAUTH) or get(MAX_REAUTH) or 0) for x in enabled},
        failure_delay_ms=int(get("connection.failed.authentication.delay.ms") or 0),
        max_receive_bytes=int(get("sasl.server.max.receive.size") or 0),
        principal_mapper=parse_mapping_rules(get("ssl.principal.mapping.rules") or "DEFAULT"),
        scram_keys=keys_of,
        delegation_tokens=token_of,
        oauthbearer=_load_oauthbearer(get, env) if OAUTHBEARER in enabled else None,
        audit=audit,
        kerberos=_load_kerberos(get, env) if GSSAPI in enabled else None,
    )


def _load_oauthbearer(get: SettingLookup, env: Env | None) -> OAuthBearerConfig:
    # lazy: 9.6 ms, 1018 kB: only with OAUTHBEARER
    from ottla.broker.security.authn.oauthbearer_config import load_oauthbearer_config

    assert env is not None, "keys are fetched, and tokens end"
    return load_oauthbearer_config(partial(_oauthbearer_setting, get), env)


def _load_kerberos(get: SettingLookup, env: Env | None) -> KerberosConfig:
    # lazy: 2.3 ms, 109 kB: only with GSSAPI
    from ottla.broker.security.authn.kerberos_config import load_kerberos_config

    assert env is not None, "keys lie in a file"
    return load_kerberos_config(get, _mechanism_setting(get, GSSAPI, JAAS_CONFIG), env)


def _oauthbearer_setting(get: SettingLookup, name: str) -> str | None:
    """Return a setting of OAUTHBEARER: that with the mechanism prefix, else that without; None if neither is set."""
    return get(f"{OAUTHBEARER.lower()}.{name}") or get(name)


def build_outbound_access(
    values: Mapping[str, str], listener: str, protocol: str, mechanism: str
) -> ConnectionSecurity:
    """Return TLS and SASL login for connections that this node opens to the listener with this name of other nodes.

    Args:
        values: settings of the node.
        listener: name of the listener.
        protocol: its security protocol, such as ``SASL_SSL``; PLAINTEXT gives `NO_SECURITY`.
        mechanism: SASL mechanism; used only with SASL.

    Raises:
        InvalidSecurityConfig: invalid settings.
    """
    if protocol == "PLAINTEXT":
        return NO_SECURITY
    get = listener_setting(values, listener)
    tls = parse_tls(get) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ConnectionSecurity(tls)
    own = lambda name: _mechanism_setting(get, mechanism, name) or get(name)  # noqa: E731 - one line says it
    return ConnectionSecurity(tls, parse_login(mechanism, _mechanism_setting(get, mechanism, JAAS_CONFIG), own))


def find_listener_problems(values: Mapping[str, str], listeners: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Yield (setting, problem) for each invalid TLS or SASL setting; keystores and keytabs are not opened.

    ``listeners``: security protocols by listener name. Nothing is yielded for PLAINTEXT listeners.
    """
    for listener, protocol in listeners.items():
        if protocol == "PLAINTEXT":
            continue
        get = listener_setting(values, listener)
        prefix = f"listener.name.{listener.lower()}."
        if protocol.startswith("SASL"):
            yield from _sasl_problems(get, prefix)
        for key, read in _CHECKED_SETTINGS.items():
            try:
                read(values, listener, protocol)
            except (InvalidSecurityConfig, InvalidMappingRule) as error:
                yield key, str(error)
        if protocol.endswith("SSL") and not get("ssl.keystore.location") and not get("ssl.keystore.key"):
            yield (
                "ssl.keystore.location",
                f"listener {listener} needs a key and a certificate, here or in ssl.keystore.key",
            )


def _sasl_problems(get: SettingLookup, prefix: str) -> Iterator[ConfigProblem]:
    enabled = _enabled_mechanisms(get)
    for mechanism in enabled:
        if mechanism not in SUPPORTED_MECHANISMS:
            yield (
                ENABLED_MECHANISMS,
                f"unsupported mechanism {mechanism}: choose from {', '.join(SUPPORTED_MECHANISMS)}",
            )
    if not enabled:
        yield ENABLED_MECHANISMS, f"no mechanism enabled: choose from {', '.join(SUPPORTED_MECHANISMS)}"
    if OAUTHBEARER in enabled:
        # lazy: 9.8 ms, 1018 kB
        from ottla.broker.security.authn.oauthbearer_config import find_oauthbearer_problems as refused

        yield from (
            (f"{prefix}{OAUTHBEARER.lower()}.{key}", why) for key, why in refused(partial(_oauthbearer_setting, get))
        )
    if GSSAPI in enabled:
        # lazy: 2.3 ms, 109 kB
        from ottla.broker.security.authn import kerberos_config

        yield from kerberos_config.find_kerberos_problems(
            get, f"{prefix}{GSSAPI.lower()}.{JAAS_CONFIG}", _mechanism_setting(get, GSSAPI, JAAS_CONFIG)
        )
    for mechanism in (x for x in enabled if x in MECHANISMS):
        key = f"{prefix}{mechanism.lower()}.{JAAS_CONFIG}"
        try:
            module = _jaas(get, mechanism)
        except InvalidJaasConfig as error:
            yield key, str(error)
            continue
        if mechanism not in MECHANISM_TYPES and (module is None or not parse_users(module.options)):
            yield key, 'users of PLAIN expected: PlainLoginModule required user_NAME="password";'


_CHECKED_SETTINGS: dict[str, Callable[[Mapping[str, str], str, str], object]] = {
    "ssl.principal.mapping.rules": lambda values, name, _: parse_mapping_rules(
        listener_setting(values, name)("ssl.principal.mapping.rules") or "DEFAULT"
    ),
    "ssl.keystore.location": listener_tls,
}
