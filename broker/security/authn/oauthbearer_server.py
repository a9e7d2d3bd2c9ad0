"""OAUTHBEARER, server side: the client sends a token, and is authenticated until the token expires.

Behaviour (S-326, S-327): an invalid token gets a JSON error without an error code; the client responds with one byte,
and then authentication fails with the same JSON as its message. An authorization id must equal the token's principal.
Extensions are ignored.

Source: ``OAuthBearerSaslServer.java``, ``OAuthBearerClientInitialResponse.java`` (apache/kafka 4.3.1).

From RFC 7628; in Kafka from KIP-255, extensions from KIP-342.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from ottla.broker.config.limits import MAX_OAUTHBEARER_MESSAGE_BYTES
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException

_ACKNOWLEDGED = b"\x01"
_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_FIRST = re.compile(f"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\\x21-\\x7E \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class InvalidToken(Exception):
    """Raised for an invalid token. The message is for the log and contains no part of the token."""

    def __init__(self, why: str, status: str = "invalid_token", scope: str | None = None) -> None:
        """Create the error; ``why`` is for the log, ``status`` and ``scope`` (None: omitted) for the client."""
        super().__init__(why)
        self.client_message = f'{{"status":"{status}"' + (f', "scope":"{scope}"' if scope is not None else "") + "}"


class OAuthBearerToken(NamedTuple):
    """Principal name (without ``User:``) and expiry of a valid token."""

    principal_name: str
    expires_ms: int
    """Expiry in wall-clock ms since 1970."""


class TokenValidator(Protocol):
    """Validator of tokens, implemented in `ottla.broker.security.authn.jwt_validator`."""

    def validate(self, token: str) -> OAuthBearerToken:
        """Return principal and expiry of a valid token; this may read a changed file of keys.

        Raises:
            InvalidToken: It is not valid; the error has a message for the client.
        """


class OAuthBearerSaslServer:
    """Server side of one OAUTHBEARER authentication (`SaslServer`)."""

    is_delegation_token = False
    may_block = False

    def __init__(self, tokens: TokenValidator) -> None:
        self._validator = tokens
        self._error_response: str | None = None
        self._why = ""
        self.is_complete = False
        self.authorization_id = ""
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Process the client's token, or its acknowledgement of the error; return the response.

        The response is empty for a valid token, else a JSON error: an invalid token raises nothing until the client
        acknowledges the error.

        Raises:
            SaslAuthenticationException: malformed message, other authorization id, or an acknowledged error.
        """
        if token == _ACKNOWLEDGED and self._error_response is not None:
            raise SaslAuthenticationException(self._why, self._error_response)
        self._error_response = None
        authorization_id, value = _read_first(token)
        try:
            bearer = self._validator.validate(value)
        except InvalidToken as error:
            self._error_response, self._why = error.client_message, str(error)
            return error.client_message.encode()
        if authorization_id and authorization_id != bearer.principal_name:
            raise SaslAuthenticationException(
                "another authorization id than the token's name",
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.principal_name})",
            )
        self.authorization_id, self.expires_ms, self.is_complete = bearer.principal_name, bearer.expires_ms, True
        return b""


def _read_first(raw: bytes) -> tuple[str, str]:
    """Return authorization id (empty if absent) and token of the first message. Raises SaslAuthenticationException."""
    found = _FIRST.fullmatch(raw.decode("utf-8", "replace")) if len(raw) <= MAX_OAUTHBEARER_MESSAGE_BYTES else None
    if found is None:
        raise SaslAuthenticationException("no OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslAuthenticationException("an OAUTHBEARER message without a bearer's token")
    return found["authzid"] or "", auth["token"]
