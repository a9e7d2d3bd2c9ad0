"""Parser of a client's security settings: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

Brokers parse the ``ssl.*`` settings of their listeners with `parse_tls`, and their own logins with `parse_login`.

Source: ``SslConfigs.java``, ``SaslConfigs.java``, ``CommonClientConfigs.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.client.connection_security import ConnectionSecurity, SaslLogin
from ottla.client.jaas import InvalidJaasConfig, parse_jaas
from ottla.client.scram import MECHANISM_TYPES
from ottla.env.tls import TlsConfig, TlsStore

SettingLookup = Callable[[str], "str | None"]
"""Function that returns the value of a setting by name; None if it is not set."""
PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = (PLAIN, *MECHANISM_TYPES)
"""Supported SASL mechanisms with user and password."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class InvalidSecurityConfig(Exception):
    """Raised for invalid or contradictory security settings; the message is one line without secrets."""


def _split_list(text: str | None) -> tuple[str, ...]:
    return tuple(x.strip() for x in (text or "").split(",") if x.strip())


def _store(get: SettingLookup, prefix: str, *texts: str) -> TlsStore | None:
    """Return the key or trust store of the settings ``prefix``.location etc.; None if there is none.

    ``prefix``: ``ssl.keystore`` or ``ssl.truststore``; ``texts``: settings below it that contain PEM text.

    Raises:
        InvalidSecurityConfig: both a location and PEM text are set.
    """
    pem = "\n".join(x for x in (get(f"{prefix}.{name}") for name in texts) if x)
    location = get(f"{prefix}.location") or ""
    if not pem and not location:
        return None
    if pem and location:
        raise InvalidSecurityConfig(f"{prefix}.location and {prefix}.{texts[0]} cannot both be set: leave one out")
    return TlsStore(location, pem, get(f"{prefix}.password") or "", get(f"{prefix}.type") or "")


def parse_tls(get: SettingLookup) -> TlsConfig:
    """Return the TLS settings in ``ssl.*`` of a client or a listener, which ``get`` looks up; files are not read yet.

    Raises:
        InvalidSecurityConfig: two settings contradict each other.
    """
    if bool(get("ssl.keystore.key")) != bool(get("ssl.keystore.certificate.chain")):
        raise InvalidSecurityConfig("ssl.keystore.key and ssl.keystore.certificate.chain go together")
    names = get("ssl.endpoint.identification.algorithm")
    return TlsConfig(
        keystore=_store(get, "ssl.keystore", "key", "certificate.chain"),
        key_password=get("ssl.key.password") or "",
        truststore=_store(get, "ssl.truststore", "certificates"),
        protocols=_split_list(get("ssl.enabled.protocols")) or ("TLSv1.2", "TLSv1.3"),
        cipher_suites=_split_list(get("ssl.cipher.suites")),
        client_auth=(get("ssl.client.auth") or "none").strip().lower(),
        verify_hostname=names is None or bool(names.strip()),
    )


def parse_login(mechanism: str, jaas: str | None, get: SettingLookup) -> SaslLogin:
    """Return the SASL credentials in ``sasl.jaas.config`` (``jaas``, None if not set); ``get`` looks up other settings.

    Raises:
        InvalidSecurityConfig: ``jaas`` is missing, malformed or has no credentials, the mechanism is not supported, or
            a setting or library that it needs is missing.
    """
    if mechanism == OAUTHBEARER:
        return _parse_oauthbearer(jaas, get)
    if mechanism == GSSAPI:
        return _parse_gssapi(jaas, get)
    if mechanism not in MECHANISMS:
        supported = ", ".join((*MECHANISMS, OAUTHBEARER, GSSAPI))
        raise InvalidSecurityConfig(f"unsupported sasl.mechanism {mechanism}: one of {supported} expected")
    try:
        options = parse_jaas(jaas or "").options
    except InvalidJaasConfig as error:
        raise InvalidSecurityConfig(f"sasl.jaas.config: {error}") from None
    user, password = options.get("username", ""), options.get("password", "")
    if not user or not password:
        raise InvalidSecurityConfig("sasl.jaas.config: username or password is missing")
    return SaslLogin(mechanism, user, password, options.get("tokenauth", "").lower() == "true")


def _parse_oauthbearer(jaas: str | None, get: SettingLookup) -> SaslLogin:
    # lazy: 8.5 ms, 928 kB: only with OAUTHBEARER
    from ottla.client import oauthbearer

    try:
        module = parse_jaas(jaas or "")
        own_tls = any(name.startswith("ssl.") for name in module.options)
        values = {name: get(name) or "" for name in oauthbearer.SETTINGS}
        source = oauthbearer.parse_token_source(values, module, parse_tls(module.options.get) if own_tls else None)
    except (InvalidJaasConfig, ValueError) as error:
        raise InvalidSecurityConfig(
            f"sasl.jaas.config: {error}" if isinstance(error, InvalidJaasConfig) else str(error)
        ) from None
    return SaslLogin(OAUTHBEARER, "", "", token_source=source)


def _parse_gssapi(jaas: str | None, get: SettingLookup) -> SaslLogin:
    # lazy: 1.1 ms, 50 kB: only with GSSAPI
    from ottla.client.gssapi_client import SERVICE_NAME_KEY, parse_kerberos_login

    try:
        return SaslLogin(GSSAPI, "", "", kerberos=parse_kerberos_login(jaas, get(SERVICE_NAME_KEY)))
    except InvalidJaasConfig as error:
        raise InvalidSecurityConfig(f"sasl.jaas.config: {error}") from None
    except ValueError as error:
        raise InvalidSecurityConfig(str(error)) from None


def parse_connection_security(values: Mapping[str, str]) -> ConnectionSecurity:
    """Return the security of a client's connections by its settings ``security.protocol``, ``sasl.*``, ``ssl.*``.

    Raises:
        InvalidSecurityConfig: the settings are invalid or contradictory.
    """
    protocol = values.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise InvalidSecurityConfig(f"unknown security.protocol: {protocol} (choose from {', '.join(PROTOCOLS)})")
    tls = parse_tls(values.get) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ConnectionSecurity(tls)
    mechanism = values.get("sasl.mechanism", "GSSAPI").strip()
    return ConnectionSecurity(tls, parse_login(mechanism, values.get("sasl.jaas.config"), values.get))
