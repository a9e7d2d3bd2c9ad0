"""SCRAM, server side: the client proves knowledge of a password that is not stored.

Behaviour (S-321, S-322, S-335): channel binding is rejected; the final message must have both nonces; credentials with
too few iterations are rejected; proofs are compared in constant time. An unknown user and a wrong password have the
same error. With ``tokenauth=true`` the name is a delegation token's id, and its owner is authenticated.

Source: ``ScramSaslServer.java``, ``ScramServerCallbackHandler.java`` (apache/kafka 4.3.1).

From RFC 5802; in Kafka from KIP-84, tokens from KIP-48.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.security.authn.sasl_server import SaslAuthenticationException
from ottla.client import scram
from ottla.client.scram import MECHANISM_TYPES, ClientFirstMessage, ScramCredential, ScramError
from ottla.controller.metadata.image import MetadataImage


class DelegationTokenCredential(NamedTuple):
    """SCRAM credential of a delegation token, with owner and expiry in wall-clock ms."""

    keys: ScramCredential
    owner: str
    """Principal name of the owner, without ``User:``."""
    expires_ms: int


ScramKeyLookup = Callable[[str, str], "ScramCredential | None"]
"""Lookup of a SCRAM credential by (user, mechanism); None for an unknown user."""
DelegationTokenLookup = Callable[[str, str], "DelegationTokenCredential | None"]
"""Lookup of a token's credential by (token id, mechanism); None for an unknown token."""


def no_delegation_tokens(token_id: str, mechanism: str) -> DelegationTokenCredential | None:
    """Return None, for every token: delegation tokens are disabled."""
    return None


def find_scram_keys(image: MetadataImage, user: str, mechanism: str) -> ScramCredential | None:
    """Return the SCRAM credential of a user in the metadata image; None if there is none for the mechanism."""
    record = image.others.get(("scram", user, MECHANISM_TYPES[mechanism]))
    if record is None:
        return None
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)  # type: ignore[attr-defined]


class ScramSaslServer:
    """Server side of one SCRAM authentication (`SaslServer`), with a first and a final message of the client."""

    may_block = False

    def __init__(
        self,
        mechanism: str,
        nonce: str,
        keys_of: ScramKeyLookup,
        token_of: DelegationTokenLookup = no_delegation_tokens,
    ) -> None:
        """Create the server side for a mechanism.

        Args:
            mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
            nonce: unpredictable server nonce, new for each authentication.
            keys_of: lookup of users' credentials.
            token_of: lookup of delegation tokens.
        """
        self._mechanism, self._own_nonce = mechanism, nonce
        self._scram_keys, self._delegation_tokens = keys_of, token_of
        self._first: ClientFirstMessage | None = None
        self._keys: ScramCredential | None = None
        self._answer = ""
        self._nonce = ""
        self.is_complete = False
        self.authorization_id = ""
        self.expires_ms: int | None = None
        self.is_delegation_token = False

    def evaluate(self, token: bytes) -> bytes:
        """Process the client's first or final message; return the server's first or final message.

        Raises:
            SaslAuthenticationException: malformed message, unknown user or token, another authorization id than the
                name, too few iterations, another nonce, or wrong proof.
        """
        try:
            return (
                self._evaluate_first(scram.parse_client_first(token))
                if self._first is None
                else self._evaluate_final(token)
            )
        except ScramError as error:
            raise SaslAuthenticationException(str(error)) from None

    def _evaluate_first(self, first: ClientFirstMessage) -> bytes:
        if first.extensions.get("tokenauth", "").lower() == "true":
            keys = self._find_token_keys(first.name)
        else:
            keys, self.authorization_id = self._scram_keys(first.name, self._mechanism), first.name
        if keys is None:
            raise SaslAuthenticationException("unknown user")
        if first.authorization_id and first.authorization_id != first.name:
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslAuthenticationException(text, text)
        if keys.iterations < scram.MIN_ITERATIONS:
            raise SaslAuthenticationException(
                f"credentials of {keys.iterations} iterations, at least {scram.MIN_ITERATIONS}"
            )
        self._first, self._keys = first, keys
        self._nonce = first.nonce + self._own_nonce
        self._answer = scram.server_first_message(self._nonce, keys)
        return self._answer.encode()

    def _find_token_keys(self, token_id: str) -> ScramCredential | None:
        found = self._delegation_tokens(token_id, self._mechanism)
        if found is None:
            return None
        self.authorization_id, self.expires_ms, self.is_delegation_token = found.owner, found.expires_ms, True
        return found.keys

    def _evaluate_final(self, raw: bytes) -> bytes:
        first, keys = self._first, self._keys
        assert first is not None
        assert keys is not None
        final = scram.parse_client_final(raw)
        if final.nonce != self._nonce:
            raise SaslAuthenticationException("another nonce in the last message")
        auth_message = f"{first.bare},{self._answer},{final.without_proof}"
        if not scram.verify_proof(self._mechanism, keys, auth_message, final.proof):
            raise SaslAuthenticationException("wrong password")
        self.is_complete = True
        return scram.server_final_message(scram.server_signature(self._mechanism, keys, auth_message))
