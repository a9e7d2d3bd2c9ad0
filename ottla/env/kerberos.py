"""Interfaces to Kerberos for both sides: keytabs, credentials and GSS-API contexts. `ottla.runtime` implements them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class InvalidKeytab(OSError):
    """Raised if a keytab or credential cache, or the GSS-API library, cannot be used; the message is one line."""


class InvalidTicket(Exception):
    """Raised for an invalid Kerberos ticket or GSS-API token, and by a client if the KDC issues no ticket."""


class Keytab(NamedTuple):
    """Service principal of a server, and the path of the keytab with its keys."""

    path: str
    """Path of the keytab; empty: the library's default keytab."""
    principal: str
    """``kafka/host.example.org@EXAMPLE.ORG``; without a realm, of the default realm."""


class KerberosIdentity(NamedTuple):
    """Principal of the client, with its keytab or credential cache."""

    principal: str = ""
    """Principal; empty: that of the credential cache."""
    keytab: str = ""
    """Path of the keytab with the principal's key; empty: use tickets in the cache."""
    cache: str = ""
    """Path of the credential cache; empty: the library's default."""


class GssInitiator(Protocol):
    """Client side of a GSS-API context. All methods may block on files or the KDC: call them in a thread."""

    is_established: bool

    def step(self, token: bytes) -> bytes:
        """Process a token from the service (empty in the first call); return the token to send, possibly empty.

        Raises InvalidTicket.
        """

    def wrap(self, data: bytes) -> bytes:
        """Return ``data`` in a token with a checksum. Raises InvalidTicket if the context is not established."""

    def unwrap(self, token: bytes) -> bytes:
        """Verify a token of the peer and return its data. Raises InvalidTicket."""


class GssAcceptor(Protocol):
    """Server side of a GSS-API context. All methods may block on files: call them in a thread."""

    is_established: bool
    client: str
    """Principal of the client once the context is established: ``alice@EXAMPLE.ORG``."""

    def accept(self, token: bytes) -> bytes:
        """Process a token from the client; return the token to send, possibly empty. Raises InvalidTicket."""

    def wrap(self, data: bytes) -> bytes:
        """Return ``data`` in a token with a checksum. Raises InvalidTicket if the context is not established."""

    def unwrap(self, token: bytes) -> bytes:
        """Verify a token of the peer and return its data. Raises InvalidTicket."""


class GssAcceptorCredentials(Protocol):
    """Credentials of a service, with which it accepts Kerberos tickets."""

    default_realm: str
    """Default realm of the machine; empty if it has none."""

    def new_context(self) -> GssAcceptor:
        """Return a new GSS-API context for the authentication of one client."""
