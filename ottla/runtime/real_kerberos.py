"""Kerberos with the system's MIT library through the package ``gssapi``, which is imported on first use.

A keytab is read again for each client, so that an added key is used at once. Acceptors need no connection to the KDC,
initiators do. The library detects replays with its replay cache, a file shared by all acceptors of the machine.

Source: ``GssKrb5Server`` of Java's ``jdk.security.jgss``; RFC 2743, RFC 4121.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

from ottla.env.kerberos import GssAcceptor, InvalidKeytab, InvalidTicket, KerberosIdentity, Keytab

_EMPTY_STATUSES = ("Success", "Unknown error")
_LONGEST_CHARS = 255


def _describe_error(error: Any) -> str:
    """Return the text of a GSS-API error in one line: the mechanism's text, or GSS-API's own if the mechanism has none.

    It may contain the service name of the ticket, which the client has chosen: it is cut after 255 characters, and
    characters that are not printable are escaped, so that it can be logged.
    """
    statuses = error.get_all_statuses(error.min_code, False) if error.min_code else []
    if not statuses or statuses[0] in _EMPTY_STATUSES:
        statuses = error.get_all_statuses(error.maj_code, True)
    line = " ".join("; ".join(map(str, statuses)).split())
    cut = line if len(line) <= _LONGEST_CHARS else line[:_LONGEST_CHARS] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def _load_gssapi() -> Any:
    """Import and return the package ``gssapi``. Raises InvalidKeytab if it or the library is missing."""
    try:
        return import_module("gssapi")
    except (ImportError, OSError) as error:  # OSError: the package is installed, but not the library
        raise InvalidKeytab(f"Kerberos needs the package gssapi (pip install 'ottla[kerberos]'): {error}") from None


class _GssContext:
    """GSS-API context; common part of initiator and acceptor."""

    def __init__(self, library: Any, context: Any) -> None:
        self._wrong = library.exceptions.GSSError
        self._context = context
        self.is_established = False

    def wrap(self, data: bytes) -> bytes:
        """Return ``data`` in a token with a checksum, unencrypted.

        Raises:
            InvalidTicket: the context is not established or has expired.
        """
        try:
            return bytes(self._context.wrap(data, encrypt=False).message)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None

    def unwrap(self, token: bytes) -> bytes:
        """Verify a token of the peer and return its data.

        Raises:
            InvalidTicket: the token is not the peer's, is a replay, or is out of order.
        """
        try:
            return bytes(self._context.unwrap(token).message)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None


class RealGssInitiator(_GssContext):
    """Client side of a context. Tickets obtained with a keytab are cached and renewed.

    The cache is in this process's memory, unless the identity names a file for it.
    """

    def __init__(self, identity: KerberosIdentity, service: str) -> None:
        """Create a context with ``service`` (``kafka@host``), loading the client's credentials.

        Raises:
            InvalidKeytab: the library, the key or the ticket is missing.
        """
        gss = _load_gssapi()
        flags = [gss.RequirementFlag.mutual_authentication, gss.RequirementFlag.integrity]
        store = (
            {"client_keytab": identity.keytab, "ccache": f"MEMORY:ottla {identity.principal}"}
            if identity.keytab
            else {}
        )
        if identity.cache:
            store["ccache"] = f"FILE:{identity.cache}"
        try:
            name = gss.Name(identity.principal, gss.NameType.kerberos_principal) if identity.principal else None
            mechanism = gss.MechType.kerberos
            credentials = gss.Credentials(name=name, usage="initiate", mechs=[mechanism], store=store or None)
            there = gss.Name(service, gss.NameType.hostbased_service)
            context = gss.SecurityContext(name=there, creds=credentials, usage="initiate", mech=mechanism, flags=flags)
        except gss.exceptions.GSSError as error:
            raise InvalidKeytab(f"no ticket of {identity.principal or 'anybody'}: {_describe_error(error)}") from None
        super().__init__(gss, context)

    def step(self, token: bytes) -> bytes:
        """Process a token of the service (empty at first); return the token to send to it, empty if there is none.

        Sets `is_established` once the context is complete. May send a request to the KDC, and blocks meanwhile.

        Raises:
            InvalidTicket: the KDC issued no ticket for the service, or the peer is another service.
        """
        try:
            reply = self._context.step(token or None)
            self.is_established = bool(self._context.complete)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None
        return reply or b""


class RealGssAcceptor(_GssContext):
    """Server side of a context with one client; `client` is its principal, empty before the context is established."""

    def __init__(self, library: Any, credentials: Any) -> None:
        super().__init__(library, library.SecurityContext(creds=credentials, usage="accept"))
        self.client = ""

    def accept(self, token: bytes) -> bytes:
        """Process a token of the client; return the token to send to it, empty if there is none.

        Sets `client` (principal) and `is_established` once the context is complete.

        Raises:
            InvalidTicket: the token is malformed, for another service, or expired.
        """
        try:
            reply = self._context.step(token)
            if self._context.complete:
                self.client = str(self._context.initiator_name)
                self.is_established = True
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None
        return reply or b""


class RealGssAcceptorCredentials:
    """Credentials of a service from a keytab, with which it accepts tickets."""

    def __init__(self, keytab: Keytab) -> None:
        """Load the service's key from the keytab.

        Raises:
            InvalidKeytab: the library, the keytab file or the principal's key in it is missing.
        """
        self._library = _load_gssapi()
        gss = self._library
        store = {"keytab": keytab.path} if keytab.path else None
        try:
            name = gss.Name(keytab.principal, gss.NameType.kerberos_principal)
            mechanisms = [gss.MechType.kerberos]
            self._credentials = gss.Credentials(name=name, usage="accept", mechs=mechanisms, store=store)
        except gss.exceptions.GSSError as error:
            where = keytab.path or "the default keytab"
            raise InvalidKeytab(f"no key of {keytab.principal} in {where}: {_describe_error(error)}") from None
        self.default_realm = ""
        with contextlib.suppress(gss.exceptions.GSSError):
            anybody = gss.Name("anybody", gss.NameType.kerberos_principal).canonicalize(gss.MechType.kerberos)
            self.default_realm = str(anybody).rpartition("@")[2]

    def new_context(self) -> GssAcceptor:
        """Return a new context for the authentication of one client."""
        return RealGssAcceptor(self._library, self._credentials)
