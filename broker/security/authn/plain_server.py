"""PLAIN, server side: user and password in plain text, compared with those of the listener's JAAS config.

Behaviour (S-319): the message is UTF-8 of exactly three parts separated by NUL: an authorization id that is empty or
the user's name, the user and the password, both not empty. The error names the violated rule.

Source: ``PlainSaslServer.java``, ``PlainServerCallbackHandler.java`` (apache/kafka 4.3.1).

From RFC 4616; in Kafka from KIP-43.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256

from ottla.broker.config.limits import MAX_INVALID_UTF8_BYTES
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException

_USER = "user_"
_NO_DIGEST = bytes(32)
"""Digest of unknown users, which no password has."""


def _digest(password: str) -> bytes:
    """Return the SHA-256 digest of a password, so that the time of comparisons does not depend on its length."""
    return sha256(password.encode(errors="surrogatepass")).digest()


def parse_users(options: Mapping[str, str]) -> dict[str, bytes]:
    """Return the digests of passwords by user name, from JAAS options ``user_NAME="password"``."""
    return {name.removeprefix(_USER): _digest(value) for name, value in options.items() if name.startswith(_USER)}


class PlainSaslServer:
    """Server side of one PLAIN authentication (`SaslServer`), with a single message of the client."""

    expires_ms: int | None = None
    is_delegation_token = False
    may_block = False

    def __init__(self, digests: Mapping[str, bytes]) -> None:
        """``digests``: password digests by user name, from `parse_users`."""
        self._digests = digests
        self.is_complete = False
        self.authorization_id = ""

    def evaluate(self, token: bytes) -> bytes:
        """Process the client's only message; set the authorization id and return the empty response.

        Raises:
            SaslAuthenticationException: malformed message, unknown user, wrong password, or an authorization id that is
                not the user name.
        """
        parts = _text(token).split("\0", 3)
        if len(parts) != 3:
            raise _failure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise _failure("Authentication failed: username not specified")
        if not password:
            raise _failure("Authentication failed: password not specified")
        # An unknown user takes as long as a wrong password of any length.
        if not hmac.compare_digest(_digest(password), self._digests.get(user, _NO_DIGEST)):
            raise _failure("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise _failure(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id, self.is_complete = user, True
        return b""


def _failure(text: str) -> SaslAuthenticationException:
    return SaslAuthenticationException(text, text)


def _text(token: bytes) -> str:
    """Decode a message as Java does: invalid UTF-8 becomes U+FFFD.

    Raises:
        SaslAuthenticationException: It is invalid and longer than `MAX_INVALID_UTF8_BYTES`.
    """
    try:
        return token.decode()
    except UnicodeDecodeError:
        if len(token) > MAX_INVALID_UTF8_BYTES:
            raise SaslAuthenticationException("no PLAIN message") from None
        return token.decode("utf-8", "replace")
