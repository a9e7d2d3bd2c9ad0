"""SCRAM: derivation of credentials from passwords, messages of client and server, and the client's exchange.

Names are ASCII; passwords are used without the SASLprep of RFC 5802, as in Kafka.

Source: ``ScramFormatter.java``, ``ScramMessages.java``, ``ScramSaslClient.java`` (apache/kafka 4.3.1).

From RFC 5802, RFC 7677; in Kafka from KIP-84.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import NamedTuple

SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
MECHANISM_TYPES: Mapping[str, int] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""SCRAM mechanisms with their type numbers in requests and records (``ScramMechanism.java``)."""
HASHES: Mapping[str, str] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
MAX_MESSAGE_BYTES = 8 * 1024
"""Maximum size of an accepted message: matching 512 KiB would block the event loop for 100 ms."""

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_MORE = r"(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*"
_RESERVED = r"(?:m=[\x01-\x2B\x2D-\x7F]+,)?"
_CLIENT_FIRST = re.compile(
    f"(?P<head>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<more>{_MORE}))"
)
_SERVER_FIRST = re.compile(
    f"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_MORE}"
)
_CLIENT_FINAL = re.compile(
    f"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_MORE}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(f"(?:e=(?P<error>[\\x01-\\x2B\\x2D-\\x3C\\x3E-\\x7F]+)|v=(?P<signature>{_BASE64})){_MORE}")


class ScramError(Exception):
    """Raised on both sides for a malformed SCRAM message, and by `ScramClient` for a server message that it rejects.

    A wrong proof of a client does not raise it (`verify_proof`). The text is for logs and the client's user; it is
    never sent to the peer.
    """


class ScramCredential(NamedTuple):
    """Credential that a server stores instead of a password (UserScramCredential)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Keys(iterations={self.iterations})"  # the other fields would allow an offline search for the password


class ClientFirstMessage(NamedTuple):
    """Parsed client-first-message (RFC 5802): user name, authorization id, nonce and extensions."""

    name: str
    authorization_id: str
    nonce: str
    extensions: Mapping[str, str]
    bare: str
    """client-first-message-bare: the message without GS2 header, part of the signed auth message."""


class ClientFinalMessage(NamedTuple):
    """Parsed client-final-message (RFC 5802): nonce, proof, and the message without the proof."""

    nonce: str
    proof: bytes
    without_proof: str
    """Message without the proof, part of the signed auth message."""


def _mac(mechanism: str, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, HASHES[mechanism])


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password by PBKDF2 with the hash of a SCRAM mechanism; this takes some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def derive_credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Derive the credential that a server stores from a salted password."""
    client_key = _mac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(HASHES[mechanism], client_key).digest()
    return ScramCredential(salt, stored_key, _mac(mechanism, salted, b"Server Key"), iterations)


def verify_proof(mechanism: str, keys: ScramCredential, auth_message: str, proof: bytes) -> bool:
    """Return True if the client's proof over the auth message (RFC 5802) matches the credential; in constant time."""
    signature = _mac(mechanism, keys.stored_key, auth_message.encode())
    if len(proof) != len(signature):
        return False
    made = hashlib.new(HASHES[mechanism], _xor(signature, proof)).digest()
    return hmac.compare_digest(made, keys.stored_key)


def server_signature(mechanism: str, keys: ScramCredential, auth_message: str) -> bytes:
    """Return the server signature over the auth message, by which the client authenticates the server."""
    return _mac(mechanism, keys.server_key, auth_message.encode())


def _matched(pattern: re.Pattern[str], raw: bytes, kind: str) -> re.Match[str]:
    found = pattern.fullmatch(raw.decode("utf-8", "replace")) if len(raw) <= MAX_MESSAGE_BYTES else None
    if found is None:
        raise ScramError(f"no SCRAM {kind} message")
    return found


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except BadBase64:
        raise ScramError("no base64") from None


def parse_client_first(raw: bytes) -> ClientFirstMessage:
    """Parse a client-first-message (S-321). One with channel binding, required or supported, counts as malformed.

    Raises:
        ScramError: the message is malformed or too long.
    """
    found = _matched(_CLIENT_FIRST, raw, "client first")
    more = dict(part.split("=", 1) for part in found["more"].split(",") if part)
    name = found["name"].replace("=2C", ",").replace("=3D", "=")
    return ClientFirstMessage(name, found["authzid"] or "", found["nonce"], more, found["bare"])


def server_first_message(nonce: str, keys: ScramCredential) -> str:
    """Return the server-first-message: ``nonce`` (the client's followed by the server's), salt and iteration count."""
    return f"r={nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"


def parse_client_final(raw: bytes) -> ClientFinalMessage:
    """Parse a client-final-message.

    Raises:
        ScramError: the message is malformed or too long.
    """
    found = _matched(_CLIENT_FINAL, raw, "client final")
    return ClientFinalMessage(found["nonce"], _decoded(found["proof"]), found["unproved"])


def server_final_message(signature: bytes) -> bytes:
    """Return the server's last SCRAM message (RFC 5802): ``v=`` and the base64 form of the server signature."""
    return b"v=" + b64encode(signature)


class ScramClient:
    """Client side of one SCRAM exchange; verifies the server's signature too."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, token: bool = False) -> None:
        """Start an exchange; ``nonce``: random; ``token``: user and password are a delegation token's id and HMAC."""
        self._mechanism, self._password = mechanism, password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if token else "")
        self._expected: bytes | None = None
        self.is_done = False

    def first_message(self) -> bytes:
        """Return the client's first SCRAM message (RFC 5802): user name and nonce, without channel binding."""
        return f"n,,{self._bare}".encode()

    def evaluate_challenge(self, raw: bytes) -> bytes | None:
        """Return the response to a server message; None after the valid server-final-message.

        Raises:
            ScramError: the message is malformed or an error, its nonce does not continue the client's, its iteration
                count is out of bounds, or the server's signature is wrong.
        """
        if self._expected is not None:
            found = _matched(_SERVER_FINAL, raw, "server final")
            if found["error"] is not None:
                raise ScramError(f"the server returned error {found['error']}")
            if not hmac.compare_digest(_decoded(found["signature"]), self._expected):
                raise ScramError("invalid server signature in the final message of the server")
            self.is_done = True
            return None
        found = _matched(_SERVER_FIRST, raw, "server first")
        nonce, salt, iterations = found["nonce"], _decoded(found["salt"]), int(found["iterations"])
        if not nonce.startswith(self._nonce):
            raise ScramError("invalid server nonce: it does not start with the nonce of the client")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS * 64:
            raise ScramError(f"the server requires too few or too many iterations: {iterations}")
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        keys = derive_credential(self._mechanism, salted, salt, iterations)
        unproved = f"c=biws,r={nonce}"
        auth_message = f"{self._bare},{raw.decode()},{unproved}"
        self._expected = server_signature(self._mechanism, keys, auth_message)
        signature = _mac(self._mechanism, keys.stored_key, auth_message.encode())
        proof = _xor(_mac(self._mechanism, salted, b"Client Key"), signature)
        return f"{unproved},p={b64encode(proof).decode()}".encode()
