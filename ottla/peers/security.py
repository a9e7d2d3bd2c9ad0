"""How to reach a listener that asks who comes: TLS and a login, out of Kafka's settings as people have them.

Source: ``SslConfigs.java``, ``SaslConfigs.java``, ``CommonClientConfigs.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.peers.access import Access, Login
from ottla.peers.jaas import BadJaas, parse_jaas
from ottla.peers.scram import TYPES
from ottla.world.tls import Store, Tls

Get = Callable[[str], "str | None"]
"""The value of a setting; None where it has none."""
PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = (PLAIN, *TYPES)
"""What can be logged in with."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class BadAccess(Exception):
    """Settings that cannot be; one line for the user, without a secret in it."""


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(x.strip() for x in (text or "").split(",") if x.strip())


def _store(get: Get, what: str, *texts: str) -> Store | None:
    """``ssl.keystore`` or ``ssl.truststore``, with the settings that may hold PEM itself."""
    pem = "\n".join(x for x in (get(f"{what}.{name}") for name in texts) if x)
    location = get(f"{what}.location") or ""
    if not pem and not location:
        return None
    if pem and location:
        raise BadAccess(f"{what}.location cannot stand beside {what}.{texts[0]}: leave one of them out")
    return Store(location, pem, get(f"{what}.password") or "", get(f"{what}.type") or "")


def tls_of(get: Get) -> Tls:
    """TLS as the settings describe it.

    Raises:
        BadAccess: two of them cannot stand together.
    """
    if bool(get("ssl.keystore.key")) != bool(get("ssl.keystore.certificate.chain")):
        raise BadAccess("ssl.keystore.key and ssl.keystore.certificate.chain go together")
    names = get("ssl.endpoint.identification.algorithm")
    return Tls(
        keys=_store(get, "ssl.keystore", "key", "certificate.chain"),
        key_password=get("ssl.key.password") or "",
        trusted=_store(get, "ssl.truststore", "certificates"),
        protocols=_listed(get("ssl.enabled.protocols")) or ("TLSv1.2", "TLSv1.3"),
        ciphers=_listed(get("ssl.cipher.suites")),
        client_auth=(get("ssl.client.auth") or "none").strip().lower(),
        verifies_host=names is None or bool(names.strip()),
    )


def login_of(mechanism: str, jaas: str | None, get: Get) -> Login:
    """Whom a JAAS line says to be; ``get``: other settings of the same listener and mechanism.

    Raises:
        BadAccess: it says nobody, or the mechanism is not spoken.
    """
    if mechanism == OAUTHBEARER:
        return _bearer(jaas, get)
    if mechanism == GSSAPI:
        return _ticket(jaas, get)
    if mechanism not in MECHANISMS:
        spoken = ", ".join((*MECHANISMS, OAUTHBEARER, GSSAPI))
        raise BadAccess(f"sasl.mechanism {mechanism} is not spoken here: {spoken}")
    try:
        options = parse_jaas(jaas or "").options
    except BadJaas as error:
        raise BadAccess(f"sasl.jaas.config: {error}") from None
    user, password = options.get("username", ""), options.get("password", "")
    if not user or not password:
        raise BadAccess("sasl.jaas.config: username or password is missing")
    return Login(mechanism, user, password, options.get("tokenauth", "").lower() == "true")


def _bearer(jaas: str | None, get: Get) -> Login:
    from ottla.peers import bearer  # few show tokens

    try:
        module = parse_jaas(jaas or "")
        own_tls = any(name.startswith("ssl.") for name in module.options)
        values = {name: get(name) or "" for name in bearer.SETTINGS}
        source = bearer.source_of(values, module, tls_of(module.options.get) if own_tls else None)
    except (BadJaas, ValueError) as error:
        raise BadAccess(f"sasl.jaas.config: {error}" if isinstance(error, BadJaas) else str(error)) from None
    return Login(OAUTHBEARER, "", "", source=source)


def _ticket(jaas: str | None, get: Get) -> Login:
    from ottla.peers.tickets import SERVICE, source_of  # few show tickets

    try:
        return Login(GSSAPI, "", "", tickets=source_of(jaas, get(SERVICE)))
    except BadJaas as error:
        raise BadAccess(f"sasl.jaas.config: {error}") from None
    except ValueError as error:
        raise BadAccess(str(error)) from None


def access_of(values: Mapping[str, str]) -> Access:
    """A client's settings file: ``security.protocol``, ``sasl.*``, ``ssl.*``.

    Raises:
        BadAccess: they cannot be.
    """
    protocol = values.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise BadAccess(f"security.protocol {protocol} is none: {', '.join(PROTOCOLS)}")
    tls = tls_of(values.get) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Access(tls)
    mechanism = values.get("sasl.mechanism", "GSSAPI").strip()
    return Access(tls, login_of(mechanism, values.get("sasl.jaas.config"), values.get))
