"""What a listener's settings say of Kerberos: whose tickets it takes, by which keys, and how names are made of clients.

The JAAS line is that of Java's login module; no module is ever loaded by its name. Unlike Kafka the node asks no KDC
for a ticket of its own: to take tickets, keys are enough.

Source: ``KerberosLogin.java``, ``SaslChannelBuilder.java``, ``SaslServerAuthenticator.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from ottla.broker.addresses import Refusal
from ottla.broker.auth.kerberos import KerberosExchange
from ottla.broker.auth.principals import BadRule
from ottla.broker.auth.short_names import ShortName, short_names
from ottla.peers.jaas import BadJaas, parse_jaas
from ottla.peers.security import BadAccess, Get
from ottla.world.env import Env
from ottla.world.kerberos import Keytab, Tickets

SERVICE = "sasl.kerberos.service.name"
RULES = "sasl.kerberos.principal.to.local.rules"
_LINE = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="kafka/host.example.org@EXAMPLE.ORG";'
)


class Kerberos(NamedTuple):
    """Of one listener."""

    tickets: Tickets
    short_name: ShortName

    def begin(self) -> KerberosExchange:
        """Begin a login."""
        return KerberosExchange(self.tickets, self.short_name)


def _options(jaas: str | None) -> Mapping[str, str]:
    """Of the JAAS line. Raises BadAccess, BadJaas."""
    if jaas is None:
        raise BadAccess(f"is where the keys of GSSAPI stand, which is enabled if nothing is said: {_LINE}")
    options = parse_jaas(jaas).options
    is_set = {name for name in ("useKeyTab", "storeKey") if options.get(name, "").lower() == "true"}
    if len(is_set) < 2 or not options.get("principal"):
        raise BadAccess(f"tickets are taken by the keys of a keytab: {_LINE}")
    return options


def keytab_of(jaas: str | None) -> Keytab:
    """Whose keys a JAAS line names.

    Raises:
        BadAccess, BadJaas: none.
    """
    options = _options(jaas)
    path = options.get("keyTab", "")
    return Keytab(path[5:] if path.upper().startswith("FILE:") else path, options["principal"])


def kerberos_of(get: Get, jaas: str | None, env: Env) -> Kerberos:
    """Who takes a listener's tickets; ``get``: as the listener's settings have it, those `refusals` lets through.

    Raises:
        BadAccess, BadJaas, BadRule: the settings cannot be; BadKeytab: the keys cannot be used.
    """
    tickets = env.tickets(keytab_of(jaas))
    return Kerberos(tickets, short_names(get(RULES) or "", tickets.default_realm))


def refusals(get: Get, jaas_key: str, jaas: str | None) -> Iterator[Refusal]:
    """What a listener cannot take tickets with: a setting's name and why."""
    try:
        named = _options(jaas).get("serviceName")
    except (BadAccess, BadJaas) as error:
        yield jaas_key, str(error)
        return
    service = get(SERVICE)
    if not named and not service:
        yield SERVICE, "is missing: the name of the service that clients ask tickets for, mostly kafka"
    elif named and service and named != service:
        yield SERVICE, f"{service} is another name than the JAAS line's serviceName"
    try:
        short_names(get(RULES) or "", "")
    except BadRule as error:
        yield RULES, str(error)
    if find_spec("gssapi") is None:
        yield jaas_key, "needs the library gssapi: pip install 'ottla[kerberos]'"
