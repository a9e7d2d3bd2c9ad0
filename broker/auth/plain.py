"""PLAIN: user and password as they are, compared with those in the listener's JAAS line.

Behaviour (item 319): UTF-8, exactly three parts with NULs between: an authorisation id that is empty or the user's
name, the user, the password; neither of these empty. The client is told which of the rules it broke.

Source: ``PlainSaslServer.java``, ``PlainServerCallbackHandler.java`` (apache/kafka 4.3.1).

From RFC 4616; in Kafka from KIP-43.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.broker.auth.exchange import NotAuthentic

_USER = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Passwords by user: ``user_NAME="password"`` each."""
    return {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}


class PlainExchange:
    """One login."""

    expires_ms: int | None = None
    is_token = False
    waits = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.is_done = False
        self.authorization_id = ""

    def evaluate(self, token: bytes) -> bytes:
        """Take the one message there is.

        Raises:
            NotAuthentic: it breaks a rule, or names nobody, or the password is wrong.
        """
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        known = self._passwords.get(user)
        # Somebody unknown takes as long as a wrong password: his name is compared with itself.
        fits = hmac.compare_digest(password.encode(), (password + "x" if known is None else known).encode())
        if not fits or known is None:
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id, self.is_done = user, True
        return b""


def _refused(text: str) -> NotAuthentic:
    return NotAuthentic(text, text)
