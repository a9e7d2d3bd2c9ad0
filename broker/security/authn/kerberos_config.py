"""Kerberos settings of a listener: keytab, service principal and principal mapping.

The JAAS config is that of Java's Krb5LoginModule; only its options are used. Unlike Kafka the node requests no ticket
of its own from the KDC: accepting tickets needs the keytab only.

Source: ``KerberosLogin.java``, ``SaslChannelBuilder.java``, ``SaslServerAuthenticator.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from ottla.broker.config.listener_config import ConfigProblem
from ottla.broker.security.authn.gssapi_server import GssapiSaslServer
from ottla.broker.security.authn.kerberos_name_rules import KerberosNameMapper, parse_name_rules
from ottla.broker.security.authn.ssl_principal_mapper import InvalidMappingRule
from ottla.client.jaas import InvalidJaasConfig, parse_jaas
from ottla.client.security_config import InvalidSecurityConfig, SettingLookup
from ottla.env.env import Env
from ottla.env.kerberos import GssAcceptorCredentials, Keytab

SERVICE_NAME = "sasl.kerberos.service.name"
PRINCIPAL_RULES = "sasl.kerberos.principal.to.local.rules"
_JAAS_EXAMPLE = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="kafka/host.example.org@EXAMPLE.ORG";'
)


class KerberosConfig(NamedTuple):
    """Keytab and principal mapping of one listener's GSSAPI mechanism."""

    tickets: GssAcceptorCredentials
    name_mapper: KerberosNameMapper

    def create_server(self) -> GssapiSaslServer:
        """Return the server side of a new GSSAPI authentication."""
        return GssapiSaslServer(self.tickets, self.name_mapper)


def _options(jaas: str | None) -> Mapping[str, str]:
    """Return the options of a JAAS config.

    Raises:
        InvalidSecurityConfig: there is no config (None), or it lacks useKeyTab, storeKey or the principal.
        InvalidJaasConfig: it is malformed.
    """
    if jaas is None:
        raise InvalidSecurityConfig(f"is missing: keytab of GSSAPI, which is enabled by default: {_JAAS_EXAMPLE}")
    options = parse_jaas(jaas).options
    is_set = {name for name in ("useKeyTab", "storeKey") if options.get(name, "").lower() == "true"}
    if len(is_set) < 2 or not options.get("principal"):
        raise InvalidSecurityConfig(f"useKeyTab, storeKey and principal are required: {_JAAS_EXAMPLE}")
    return options


def parse_keytab(jaas: str | None) -> Keytab:
    """Return keytab path (empty for the library's default keytab) and service principal of a JAAS config.

    Raises:
        InvalidSecurityConfig, InvalidJaasConfig: the config is invalid or missing (None).
    """
    options = _options(jaas)
    path = options.get("keyTab", "")
    return Keytab(path[5:] if path.upper().startswith("FILE:") else path, options["principal"])


def load_kerberos_config(get: SettingLookup, jaas: str | None, env: Env) -> KerberosConfig:
    """Load the Kerberos configuration of a listener; ``get`` looks up its settings.

    Raises:
        InvalidSecurityConfig, InvalidJaasConfig, InvalidMappingRule: invalid settings.
        InvalidKeytab: the keytab cannot be used.
    """
    tickets = env.kerberos_acceptor(parse_keytab(jaas))
    return KerberosConfig(tickets, parse_name_rules(get(PRINCIPAL_RULES) or "", tickets.default_realm))


def find_kerberos_problems(get: SettingLookup, jaas_key: str, jaas: str | None) -> Iterator[ConfigProblem]:
    """Yield (setting name, problem) for each invalid Kerberos setting of a listener, and for a missing library.

    An invalid JAAS config is the only problem reported. The keytab is not opened: see `load_kerberos_config`.

    ``get`` looks up its settings; ``jaas_key``: full name of the setting with the JAAS config ``jaas``, None if not
    set.
    """
    try:
        named = _options(jaas).get("serviceName")
    except (InvalidSecurityConfig, InvalidJaasConfig) as error:
        yield jaas_key, str(error)
        return
    service = get(SERVICE_NAME)
    if not named and not service:
        yield SERVICE_NAME, "is missing: service name of the brokers' principals, usually kafka"
    elif named and service and named != service:
        yield SERVICE_NAME, f"{service} differs from serviceName in the JAAS configuration"
    try:
        parse_name_rules(get(PRINCIPAL_RULES) or "", "")
    except InvalidMappingRule as error:
        yield PRINCIPAL_RULES, str(error)
    if find_spec("gssapi") is None:
        yield jaas_key, "needs the library gssapi: pip install 'ottla[kerberos]'"
