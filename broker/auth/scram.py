"""SCRAM, the server's side: the client proves that it knows a password that is not kept here.

Behaviour (items 321, 322, 335): who asks for channel binding is refused; the last message must carry both nonces;
credentials of too few iterations let nobody in; proofs are compared in constant time. An unknown user and a wrong
password are told alike. With ``tokenauth=true`` the name is a delegation token's id, and its owner logs in.

Source: ``ScramSaslServer.java``, ``ScramServerCallbackHandler.java`` (apache/kafka 4.3.1).

From RFC 5802; in Kafka from KIP-84, tokens from KIP-48.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.auth.exchange import NotAuthentic
from ottla.controller.image import MetadataImage
from ottla.peers import scram
from ottla.peers.scram import TYPES, BadScram, ClientFirst, Keys


class Token(NamedTuple):
    """A delegation token, as a login by it needs it."""

    keys: Keys
    owner: str
    """Whose it is: a name without ``User:``."""
    expires_ms: int


KeysOf = Callable[[str, str], "Keys | None"]
"""(user, mechanism) -> what is kept of the password."""
TokenOf = Callable[[str, str], "Token | None"]
"""(token id, mechanism) -> the token."""


def no_tokens(token_id: str, mechanism: str) -> Token | None:
    """Delegation tokens are off."""
    return None


def keys_in(image: MetadataImage, user: str, mechanism: str) -> Keys | None:
    """What the cluster's metadata keeps of a user's password."""
    record = image.others.get(("scram", user, TYPES[mechanism]))
    if record is None:
        return None
    return Keys(record.salt, record.stored_key, record.server_key, record.iterations)  # type: ignore[attr-defined]


class ScramExchange:
    """One login."""

    waits = False

    def __init__(self, mechanism: str, nonce: str, keys_of: KeysOf, token_of: TokenOf = no_tokens) -> None:
        """``nonce``: the server's part, fresh and not to be guessed."""
        self._mechanism, self._own_nonce = mechanism, nonce
        self._keys_of, self._token_of = keys_of, token_of
        self._first: ClientFirst | None = None
        self._keys: Keys | None = None
        self._answer = ""
        self._nonce = ""
        self.is_done = False
        self.authorization_id = ""
        self.expires_ms: int | None = None
        self.is_token = False

    def evaluate(self, token: bytes) -> bytes:
        """Take the client's first or last message.

        Raises:
            NotAuthentic: it is none, names nobody, or proves nothing.
        """
        try:
            return self._begin(scram.read_client_first(token)) if self._first is None else self._end(token)
        except BadScram as error:
            raise NotAuthentic(str(error)) from None

    def _begin(self, first: ClientFirst) -> bytes:
        if first.extensions.get("tokenauth", "").lower() == "true":
            keys = self._take_token(first.name)
        else:
            keys, self.authorization_id = self._keys_of(first.name, self._mechanism), first.name
        if keys is None:
            raise NotAuthentic("unknown user")
        if first.authorization_id and first.authorization_id != first.name:
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise NotAuthentic(text, text)
        if keys.iterations < scram.MIN_ITERATIONS:
            raise NotAuthentic(f"credentials of {keys.iterations} iterations, at least {scram.MIN_ITERATIONS}")
        self._first, self._keys = first, keys
        self._nonce = first.nonce + self._own_nonce
        self._answer = scram.server_first(self._nonce, keys)
        return self._answer.encode()

    def _take_token(self, token_id: str) -> Keys | None:
        found = self._token_of(token_id, self._mechanism)
        if found is None:
            return None
        self.authorization_id, self.expires_ms, self.is_token = found.owner, found.expires_ms, True
        return found.keys

    def _end(self, raw: bytes) -> bytes:
        first, keys = self._first, self._keys
        assert first is not None
        assert keys is not None
        final = scram.read_client_final(raw)
        if final.nonce != self._nonce:
            raise NotAuthentic("another nonce in the last message")
        auth_message = f"{first.bare},{self._answer},{final.unproved}"
        if not scram.proves(self._mechanism, keys, auth_message, final.proof):
            raise NotAuthentic("wrong password")
        self.is_done = True
        return scram.server_final(scram.server_signature(self._mechanism, keys, auth_message))
