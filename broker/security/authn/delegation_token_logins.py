"""SCRAM credentials of delegation tokens, derived from the tokens' HMACs.

Behaviour (S-335): the user name is the token id, the password its HMAC in base64; the principal is the token's owner.
The keys are derived at the first login with a token, and cached, at most until its removal: many clients use
the same one.

Source: ``DelegationTokenManager.java``, ``ScramServerCallbackHandler.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from ottla.broker.security.authn.scram_server import DelegationTokenCredential
from ottla.client import scram
from ottla.client.scram import ScramCredential
from ottla.controller.control.delegation_tokens import token_hmac
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages import metadata_records

_MAX_CACHED_KEYS = 1_024


class DelegationTokenCredentialCache:
    """Cache of the SCRAM credentials of delegation tokens, for one listener."""

    def __init__(self, secret: str, image: Callable[[], MetadataImage], new_salt: Callable[[], bytes]) -> None:
        """Create an empty cache.

        ``secret``: ``delegation.token.secret.key``. ``image`` returns the listener's metadata image, ``new_salt``
        random bytes.
        """
        self._secret, self._image, self._new_salt = secret, image, new_salt
        self._keys: dict[tuple[str, str], ScramCredential] = {}

    def find(self, token_id: str, mechanism: str) -> DelegationTokenCredential | None:
        """Return the credential of a token id for a SCRAM mechanism; None for an unknown token.

        The credential of an expired token is returned too, with its expiry. The first call for a token derives its
        keys, which takes milliseconds; later ones use the cache.
        """
        record = self._image().others.get(("token", token_id))
        if not isinstance(record, metadata_records.DelegationTokenRecord):
            self._keys.pop((token_id, mechanism), None)
            return None
        keys = self._keys.get((token_id, mechanism))
        if keys is None:
            keys = self._derive_keys(token_id, mechanism)
        return DelegationTokenCredential(keys, record.owner.partition(":")[2], record.expiration_timestamp)

    def _derive_keys(self, token_id: str, mechanism: str) -> ScramCredential:
        password, salt = b64encode(token_hmac(self._secret, token_id)).decode(), self._new_salt()
        salted = scram.salted_password(mechanism, password, salt, scram.MIN_ITERATIONS)
        if len(self._keys) >= _MAX_CACHED_KEYS:
            self._keys.clear()
        self._keys[token_id, mechanism] = out = scram.derive_credential(mechanism, salted, salt, scram.MIN_ITERATIONS)
        return out
