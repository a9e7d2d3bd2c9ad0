"""Kerberos as a service meets it: its keys in a file, and what clients show. The machine's library makes it real."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class BadKeytab(OSError):
    """Keys that cannot be used, or no library to use them with; one line for the user."""


class BadTicket(Exception):
    """What a client showed lets nobody in."""


class Keytab(NamedTuple):
    """Whose keys, and where they lie."""

    path: str
    """Empty: where the library looks by itself."""
    principal: str
    """``kafka/host.example.org@EXAMPLE.ORG``; without a realm it is of the default one."""


class Talk(Protocol):
    """The accepting side of one context of GSS-API. Everything may wait for files: call it in a thread."""

    is_established: bool
    client: str
    """Who it is, once that is so: ``alice@EXAMPLE.ORG``."""

    def accept(self, token: bytes) -> bytes:
        """Take what the client shows; gives what it is told, perhaps nothing. Raises BadTicket."""

    def wrap(self, data: bytes) -> bytes:
        """Data with proof that it is ours. Raises BadTicket."""

    def unwrap(self, token: bytes) -> bytes:
        """Data with the proof looked at. Raises BadTicket."""


class Tickets(Protocol):
    """Who takes tickets for a service."""

    default_realm: str
    """Empty where the machine has none."""

    def begin(self) -> Talk:
        """Begin with one client."""
