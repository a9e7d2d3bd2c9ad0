"""Kerberos as both sides meet it: keys in a file, and what clients show. The machine's library makes it real."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class InvalidKeytab(OSError):
    """Keys that cannot be used, or no library to use them with; one line for the user."""


class InvalidTicket(Exception):
    """Ticket is not valid."""


class Keytab(NamedTuple):
    """Principal and path of a keytab."""

    path: str
    """Empty: where the library looks by itself."""
    principal: str
    """``kafka/host.example.org@EXAMPLE.ORG``; without a realm it is of the default one."""


class KerberosIdentity(NamedTuple):
    """Principal of the client, with its keytab or credential cache."""

    principal: str = ""
    """Empty: the principal of the credential cache."""
    keytab: str = ""
    """The file with its key; empty: tickets are in the cache already."""
    cache: str = ""
    """Credential cache; empty: the library's default."""


class GssInitiator(Protocol):
    """Initiating side of a GSS-API context. Everything may block on files or the KDC: call it in a thread."""

    is_established: bool

    def step(self, token: bytes) -> bytes:
        """Process a token of the service, empty at first; return the token to send, possibly empty.

        Raises InvalidTicket.
        """

    def wrap(self, data: bytes) -> bytes:
        """Protect data with a checksum. Raises InvalidTicket."""

    def unwrap(self, token: bytes) -> bytes:
        """Verify and return protected data. Raises InvalidTicket."""


class GssAcceptor(Protocol):
    """The accepting side of one context of GSS-API. Everything may wait for files: call it in a thread."""

    is_established: bool
    client: str
    """Principal of the client once established: ``alice@EXAMPLE.ORG``."""

    def accept(self, token: bytes) -> bytes:
        """Process a token of the client; return the token to send, possibly empty. Raises InvalidTicket."""

    def wrap(self, data: bytes) -> bytes:
        """Protect data with a checksum. Raises InvalidTicket."""

    def unwrap(self, token: bytes) -> bytes:
        """Verify and return protected data. Raises InvalidTicket."""


class GssAcceptorCredentials(Protocol):
    """Credentials to accept tickets for a service."""

    default_realm: str
    """Empty where the machine has none."""

    def new_context(self) -> GssAcceptor:
        """Begin with one client."""
