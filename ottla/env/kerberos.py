"""Kerberos as both sides meet it: keys in a file, and what clients show. The machine's library makes it real."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class InvalidKeytab(OSError):
    """Keys that cannot be used, or no library to use them with; one line for the user."""


class InvalidTicket(Exception):
    """What a client showed lets nobody in."""


class Keytab(NamedTuple):
    """Whose keys, and where they lie."""

    path: str
    """Empty: where the library looks by itself."""
    principal: str
    """``kafka/host.example.org@EXAMPLE.ORG``; without a realm it is of the default one."""


class KerberosIdentity(NamedTuple):
    """Whom to be where tickets are asked for."""

    principal: str = ""
    """Empty: whose tickets lie in the cache."""
    keytab: str = ""
    """The file with its key; empty: tickets are in the cache already."""
    cache: str = ""
    """Where tickets lie; empty: where the library looks by itself."""


class GssInitiator(Protocol):
    """The side of one context of GSS-API that begins. Everything may wait for files, or for the KDC: call it in a
    thread.
    """

    is_established: bool

    def step(self, token: bytes) -> bytes:
        """Take what the service said, nothing at first; gives what to say to it, perhaps nothing. Raises
        InvalidTicket.
        """

    def wrap(self, data: bytes) -> bytes:
        """Data with proof that it is ours. Raises InvalidTicket."""

    def unwrap(self, token: bytes) -> bytes:
        """Data with the proof looked at. Raises InvalidTicket."""


class GssAcceptor(Protocol):
    """The accepting side of one context of GSS-API. Everything may wait for files: call it in a thread."""

    is_established: bool
    client: str
    """Who it is, once that is so: ``alice@EXAMPLE.ORG``."""

    def accept(self, token: bytes) -> bytes:
        """Take what the client shows; gives what it is told, perhaps nothing. Raises InvalidTicket."""

    def wrap(self, data: bytes) -> bytes:
        """Data with proof that it is ours. Raises InvalidTicket."""

    def unwrap(self, token: bytes) -> bytes:
        """Data with the proof looked at. Raises InvalidTicket."""


class GssAcceptorCredentials(Protocol):
    """Who takes tickets for a service."""

    default_realm: str
    """Empty where the machine has none."""

    def new_context(self) -> GssAcceptor:
        """Begin with one client."""
