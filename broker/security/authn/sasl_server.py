"""Interface and errors of the server side of a SASL authentication, common to all mechanisms.

Source: ``SaslServer`` as ``SaslServerAuthenticator.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SaslAuthenticationException(Exception):
    """Raised when the SASL authentication of a client fails, with a reason for the log and a message for the client."""

    def __init__(self, why: str, client_message: str | None = None) -> None:
        """``why`` is for the log, without secrets; ``client_message`` for the client, None for a generic message."""
        super().__init__(why)
        self.client_message = client_message


class UnansweredSaslFailure(SaslAuthenticationException):
    """Raised for an authentication failure that closes the connection without a response."""


class UnmappedPrincipal(SaslAuthenticationException):
    """Raised when no rule maps the principal of a client that has proved its identity.

    As in Kafka the client gets a success before the connection is closed; with raw tokens and in a re-authentication it
    gets no response.
    """


class SaslServer(Protocol):
    """Server side of one SASL authentication: `evaluate` gets each token of the client until it is complete."""

    is_complete: bool
    """True after successful authentication."""
    authorization_id: str
    """Authenticated name, valid once ``is_complete``."""
    expires_ms: int | None
    """Expiry of the credentials in wall-clock ms, valid once ``is_complete``; None: never."""
    is_delegation_token: bool
    """True if the client authenticated with a delegation token, valid once ``is_complete``."""
    may_block: bool
    """True if `evaluate` may block on files and must be called in a thread."""

    def evaluate(self, token: bytes) -> bytes | None:
        """Process a token of the client; return the response token, None for none.

        A response may also be an error that the client has to acknowledge: only ``is_complete`` tells success.

        Raises:
            SaslAuthenticationException: authentication failed.
        """


SaslServerFactory = Callable[[], SaslServer]
"""Function that returns the server side of a new authentication."""
