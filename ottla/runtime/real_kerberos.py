"""Kerberos through the machine's own library, MIT's, by the package ``gssapi``: loaded where it is needed.

A keytab is read again for each client, so a key that is added counts at once; who takes tickets speaks to no KDC, who
shows them does. Replays are found by
the library's cache, a file that all who take tickets on this machine share.

Source: what ``GssKrb5Server`` of Java's ``jdk.security.jgss`` asks of its own library; RFC 2743, RFC 4121.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

from ottla.env.kerberos import GssAcceptor, InvalidKeytab, InvalidTicket, KerberosIdentity, Keytab

_SAYS_NOTHING = ("Success", "Unknown error")
_LONGEST_CHARS = 255


def _describe_error(error: Any) -> str:
    """A library's error in one line: what the mechanism says of it, or what GSS-API says where that says nothing.

    It may name the service a ticket is for, and who comes with it has chosen that name.
    """
    said = error.get_all_statuses(error.min_code, False) if error.min_code else []
    if not said or said[0] in _SAYS_NOTHING:
        said = error.get_all_statuses(error.maj_code, True)
    line = " ".join("; ".join(map(str, said)).split())
    cut = line if len(line) <= _LONGEST_CHARS else line[:_LONGEST_CHARS] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def _load_gssapi() -> Any:
    """Raises InvalidKeytab: it is not there."""
    try:
        return import_module("gssapi")
    except (ImportError, OSError) as error:  # the package is there, and the library under it is not
        raise InvalidKeytab(f"Kerberos needs the package gssapi (pip install 'ottla[kerberos]'): {error}") from None


class _GssContext:
    """What both sides have."""

    def __init__(self, library: Any, context: Any) -> None:
        self._wrong = library.exceptions.GSSError
        self._context = context
        self.is_established = False

    def wrap(self, data: bytes) -> bytes:
        """Data with proof that it is ours.

        Raises:
            InvalidTicket: the context has ended.
        """
        try:
            return bytes(self._context.wrap(data, encrypt=False).message)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None

    def unwrap(self, token: bytes) -> bytes:
        """Data with the proof looked at.

        Raises:
            InvalidTicket: it is not the other side's, or came twice, or out of order.
        """
        try:
            return bytes(self._context.unwrap(token).message)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None


class RealGssInitiator(_GssContext):
    """One service. Tickets got by a key lie in this process's memory, and are renewed as they grow old."""

    def __init__(self, who: KerberosIdentity, service: str) -> None:
        """Begin.

        Raises:
            InvalidKeytab: there is no library, or no such key or ticket.
        """
        gss = _load_gssapi()
        flags = [gss.RequirementFlag.mutual_authentication, gss.RequirementFlag.integrity]
        store = {"client_keytab": who.keytab, "ccache": f"MEMORY:ottla {who.principal}"} if who.keytab else {}
        if who.cache:
            store["ccache"] = f"FILE:{who.cache}"
        try:
            name = gss.Name(who.principal, gss.NameType.kerberos_principal) if who.principal else None
            mechanism = gss.MechType.kerberos
            credentials = gss.Credentials(name=name, usage="initiate", mechs=[mechanism], store=store or None)
            there = gss.Name(service, gss.NameType.hostbased_service)
            context = gss.SecurityContext(name=there, creds=credentials, usage="initiate", mech=mechanism, flags=flags)
        except gss.exceptions.GSSError as error:
            raise InvalidKeytab(f"no ticket of {who.principal or 'anybody'}: {_describe_error(error)}") from None
        super().__init__(gss, context)

    def step(self, token: bytes) -> bytes:
        """Take what the service said, nothing at first; gives what to say to it, perhaps nothing.

        Raises:
            InvalidTicket: there is no ticket for it, or it is another service.
        """
        try:
            told = self._context.step(token or None)
            self.is_established = bool(self._context.complete)
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None
        return told or b""


class RealGssAcceptor(_GssContext):
    """One client."""

    def __init__(self, library: Any, credentials: Any) -> None:
        super().__init__(library, library.SecurityContext(creds=credentials, usage="accept"))
        self.client = ""

    def accept(self, token: bytes) -> bytes:
        """Take what the client shows; gives what it is told, perhaps nothing.

        Raises:
            InvalidTicket: it is none, or not for us, or not good now.
        """
        try:
            told = self._context.step(token)
            if self._context.complete:
                self.client = str(self._context.initiator_name)
                self.is_established = True
        except self._wrong as error:
            raise InvalidTicket(_describe_error(error)) from None
        return told or b""


class RealGssAcceptorCredentials:
    """Who takes tickets for a service, by the keys in a file."""

    def __init__(self, keytab: Keytab) -> None:
        """Look at the keys.

        Raises:
            InvalidKeytab: there is no library, no such file, or no such key in it.
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
        """Begin with one client."""
        return RealGssAcceptor(self._library, self._credentials)
