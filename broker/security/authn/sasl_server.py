"""Interface of a SASL login, common to all mechanisms.

Source: ``SaslServer`` as ``SaslServerAuthenticator.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SaslAuthenticationException(Exception):
    """A login that failed."""

    def __init__(self, why: str, client_message: str | None = None) -> None:
        """``why``: for our log, without a secret. ``client_message``: for the client; None where it learns no more."""
        super().__init__(why)
        self.client_message = client_message


class UnansweredSaslFailure(SaslAuthenticationException):
    """Failure that closes the connection without a response."""


class UnmappedPrincipal(SaslAuthenticationException):
    """Authenticated client without a mapped name: it gets a success, and the connection is closed."""


class SaslServer(Protocol):
    """The server's side of one login."""

    is_complete: bool
    """True after successful authentication."""
    authorization_id: str
    """Authenticated name."""
    expires_ms: int | None
    """Expiry of the credentials, wall clock; None: never."""
    is_delegation_token: bool
    """True if a delegation token was shown."""
    may_block: bool
    """True if `evaluate` may wait for files: then it is called in a thread."""

    def evaluate(self, token: bytes) -> bytes | None:
        """Process a token of the client; return the response, None for none.

        Raises:
            SaslAuthenticationException: authentication failed.
        """


SaslServerFactory = Callable[[], SaslServer]
"""Begins a login by one mechanism."""
