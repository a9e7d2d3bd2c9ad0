"""Client side of SASL GSSAPI: authenticates with a Kerberos ticket and negotiates no protection of later messages.

Behaviour (S-320): the ticket is for ``service@host``, with the host name of the connection. Once both sides are
authenticated, the last recipient of a token sends an empty message; the service offers its protection levels and the
client selects no protection, a size of 0 and no authorisation id. The JAAS login module is Java's: with a keytab
(``useKeyTab``), or with tickets in the credential cache (``useTicketCache``). The module's name is not used to load
code, and no command is run to get a ticket.

Source: ``SaslClientAuthenticator.java``, ``KerberosLogin.java`` (apache/kafka 4.3.1), and ``GssKrb5Client`` of Java's
``jdk.security.jgss``.

From RFC 4752; in Kafka from KIP-12.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

from ottla.client.jaas import parse_jaas
from ottla.env.env import Env, ThreadPool
from ottla.env.kerberos import InvalidTicket, KerberosIdentity

SERVICE_NAME_KEY = "sasl.kerberos.service.name"
NO_PROTECTION = 1
_CHOICE = bytes([NO_PROTECTION, 0, 0, 0])
_LEAST_BYTES = 4
_LINE = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
    'keyTab="/etc/client.keytab" principal="client@EXAMPLE.ORG";'
)


class KerberosLogin(NamedTuple):
    """Client's Kerberos identity, and the name of the broker's service."""

    identity: KerberosIdentity
    service: str
    """Primary of the broker's principal (``sasl.kerberos.service.name``), usually kafka."""


def parse_kerberos_login(jaas: str | None, service: str | None) -> KerberosLogin:
    """Return the Kerberos login in ``sasl.jaas.config`` (``jaas``, None if not set).

    ``service`` is ``sasl.kerberos.service.name``, None if not set: then the JAAS option ``serviceName`` is required.
    A keytab with a principal is preferred to the credential cache.

    Raises:
        InvalidJaasConfig: ``jaas`` is malformed.
        ValueError: a setting or the library is missing, or both service names are set and differ; the message is one
            line.
    """
    if jaas is None:
        raise ValueError(f"GSSAPI, the default mechanism, needs sasl.jaas.config: {_LINE}")
    options = parse_jaas(jaas).options
    is_set = {name for name in ("useKeyTab", "useTicketCache") if options.get(name, "").lower() == "true"}
    named = options.get("serviceName")
    if named and service and named != service:
        raise ValueError(f"{SERVICE_NAME_KEY} {service} differs from serviceName in the JAAS configuration")
    if not named and not service:
        raise ValueError(f"{SERVICE_NAME_KEY} is missing: service name of the brokers' principals, usually kafka")
    principal, keytab, cache = (options.get(x, "") for x in ("principal", "keyTab", "ticketCache"))
    if not is_set or ("useTicketCache" not in is_set and not (principal and keytab)):
        raise ValueError(f"sasl.jaas.config: keyTab with principal, or useTicketCache=true, is required: {_LINE}")
    if find_spec("gssapi") is None:
        raise ValueError("GSSAPI needs the library gssapi: pip install 'ottla[kerberos]'")
    if "useKeyTab" in is_set and principal and keytab:
        return KerberosLogin(KerberosIdentity(principal, _path(keytab)), named or service or "")
    return KerberosLogin(KerberosIdentity(principal, cache=_path(cache)), named or service or "")


def _path(text: str) -> str:
    return text[5:] if text.upper().startswith("FILE:") else text


async def authenticate_gssapi(
    env: Env, source: KerberosLogin, host: str, exchange: Callable[[bytes], Awaitable[bytes]]
) -> None:
    """Authenticate to the broker's service on ``host``; ``exchange`` sends a token and returns the broker's token.

    Calls of Kerberos run in threads.

    Raises:
        InvalidKeytab: there is no key or ticket.
        InvalidTicket: no ticket for this service, another service, or it requires protection of later messages.
        Exception: each exception of ``exchange``.
    """
    call = await env.in_thread(
        partial(env.kerberos_initiator, source.identity, f"{source.service}@{host}"), ThreadPool.KERBEROS
    )
    reply = await exchange(await env.in_thread(partial(call.step, b""), ThreadPool.KERBEROS))
    while not call.is_established:
        reply = await exchange(await env.in_thread(partial(call.step, reply), ThreadPool.KERBEROS))
    offer = await env.in_thread(partial(call.unwrap, reply), ThreadPool.KERBEROS)
    if len(offer) < _LEAST_BYTES or not offer[0] & NO_PROTECTION:
        raise InvalidTicket("the service requires a security layer, which is not supported")
    await exchange(await env.in_thread(partial(call.wrap, _CHOICE), ThreadPool.KERBEROS))
