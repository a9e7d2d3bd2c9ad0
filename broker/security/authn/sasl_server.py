"""One login under way: what every mechanism gives and takes.

Source: ``SaslServer`` as ``SaslServerAuthenticator.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SaslAuthenticationException(Exception):
    """A login that failed."""

    def __init__(self, why: str, told: str | None = None) -> None:
        """``why`` is for our log, without a secret; ``told`` for the client, None where it learns no more than that."""
        super().__init__(why)
        self.client_message = told


class UnansweredSaslFailure(SaslAuthenticationException):
    """One after which the connection ends at once and without a word."""


class UnmappedPrincipal(SaslAuthenticationException):
    """The client has proved who it is, and has no name here: it is told of success, and the connection ends."""


class SaslServer(Protocol):
    """The server's side of one login."""

    is_complete: bool
    """True if the client has proved who it is."""
    authorization_id: str
    """Who, once that is so."""
    expires_ms: int | None
    """When the credentials end, by the wall clock; None: never."""
    is_delegation_token: bool
    """True if a delegation token was shown."""
    may_block: bool
    """True if `evaluate` may wait for files: then it is called in a thread."""

    def evaluate(self, token: bytes) -> bytes | None:
        """Take what the client says; gives what it is told, None where that is nothing.

        Raises:
            SaslAuthenticationException: it does not prove who it is.
        """


SaslServerFactory = Callable[[], SaslServer]
"""Begins a login by one mechanism."""
