"""Reading of key stores and trust stores in PEM, PKCS12 (by the ``cryptography`` library) and Java's JKS format.

The contents of a store determine its format, not the setting. A JKS file encrypts its keys with a scheme based on SHA-1
(``sun.security.provider.KeyProtector``); its integrity is verified with the password, if one is set.

Source: ``DefaultSslEngineFactory.java`` (apache/kafka 4.3.1); the JKS format as the JDK documents it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from base64 import b64encode
from typing import Any, NamedTuple

from ottla.env.tls import InvalidTlsConfig, TlsStore

_JKS = b"\xfe\xed\xfe\xed"
_SALT_BYTES = _DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
"""Constant that is hashed into the integrity digest of a JKS file."""
_NO_PKCS12 = "needs the library cryptography (pip install 'ottla[tls]'), or PEM: openssl pkcs12 -in FILE -out FILE.pem"


class _JksEntries(NamedTuple):
    """Entries of a JKS file: keys and trusted certificates, DER-encoded."""

    keys: list[tuple[bytes, list[bytes]]]
    """(encrypted key, its certificate chain) of each key entry."""
    trusted: list[bytes]


def load_key_pem(store: TlsStore, key_password: str) -> tuple[bytes, str | None]:
    """Return the first key of a key store with its certificates as PEM, and the password of the key in this PEM.

    The password is None if the key is not encrypted, as for PKCS12 and JKS. PEM is returned as it is, unchecked.
    ``key_password`` (``ssl.key.password``) is not used for PKCS12; empty for JKS: the password of the store.

    Raises:
        InvalidTlsConfig: the store is malformed, has no key, its password is missing, wrong or given with PEM, or the
        library for PKCS12 is missing; OSError: the file cannot be read.
    """
    raw = _raw(store)
    if _is_pem(raw):
        if store.password:
            raise InvalidTlsConfig("ssl.keystore.password does not go with PEM; a key's own is ssl.key.password")
        return raw, key_password or None
    if not store.password:
        raise InvalidTlsConfig(f"{store.location}: ssl.keystore.password is missing")
    if raw.startswith(_JKS):
        keys = _read_jks(raw, store).keys
        if not keys:
            raise InvalidTlsConfig(f"{store.location} holds no key")
        protected, chain = keys[0]
        der = _unprotected(protected, key_password or store.password, store)
        return "".join([_pem("PRIVATE KEY", der), *(_pem("CERTIFICATE", x) for x in chain)]).encode(), None
    return _pkcs12_keys(raw, store)


def load_certificates_pem(store: TlsStore) -> str:
    """Return the certificates of a trust store as PEM, one after the other; PEM is returned as it is, unchecked.

    Of JKS those of the entries for trusted certificates, not the chains of keys; empty without any.

    Raises:
        InvalidTlsConfig: the store is malformed, the password is wrong, or the library for PKCS12 is missing;
        OSError: the file cannot be read.
    """
    raw = _raw(store)
    if _is_pem(raw):
        return raw.decode("ascii", "ignore")
    if raw.startswith(_JKS):
        return "".join(_pem("CERTIFICATE", x) for x in _read_jks(raw, store).trusted)
    return _pkcs12_certificates(raw, store)


def _raw(store: TlsStore) -> bytes:
    if store.pem:
        return store.pem.encode()
    try:
        with open(store.location, "rb") as file:
            return file.read()
    except ValueError:  # the path contains NUL
        raise InvalidTlsConfig(f"{store.location!r}: invalid file name") from None


def _is_pem(raw: bytes) -> bool:
    return b"-----BEGIN " in raw


def _pem(label: str, der: bytes) -> str:
    text = b64encode(der).decode()
    lines = "\n".join(text[i : i + 64] for i in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


# ------------------------------------------------------------------ PKCS12


def _pkcs12(raw: bytes, store: TlsStore) -> Any:
    try:
        # lazy: 16.0 ms, 1279 kB: only for PKCS12, with the extra `tls`
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise InvalidTlsConfig(f"{store.location}: PKCS12 {_NO_PKCS12}") from None
    try:
        return pkcs12.load_pkcs12(raw, store.password.encode() or None)
    except ValueError:
        raise InvalidTlsConfig(f"{store.location}: no PKCS12 store, or the password is wrong") from None
    except UnsupportedAlgorithm as error:
        raise InvalidTlsConfig(f"{store.location}: {error}") from None


def _pkcs12_keys(raw: bytes, store: TlsStore) -> tuple[bytes, None]:
    made = _pkcs12(raw, store)
    # lazy: 15.7 ms, 1279 kB: only for PKCS12, with the extra `tls`
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if made.key is None or made.cert is None:
        raise InvalidTlsConfig(f"{store.location} holds no key with its certificate")
    out = [made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    out += [x.certificate.public_bytes(Encoding.PEM) for x in (made.cert, *made.additional_certs)]
    return b"".join(out), None


def _pkcs12_certificates(raw: bytes, store: TlsStore) -> str:
    made = _pkcs12(raw, store)
    # lazy: 15.5 ms, 1279 kB: only for PKCS12, with the extra `tls`
    from cryptography.hazmat.primitives.serialization import Encoding

    every = [*([made.cert] if made.cert is not None else []), *made.additional_certs]
    return "".join(x.certificate.public_bytes(Encoding.PEM).decode() for x in every)


# ------------------------------------------------------------------ JKS


class _JksReader:
    """Reader of big-endian values from the bytes of a JKS file."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.pos = raw, 0

    def number(self, form: str) -> int:
        (out,) = struct.unpack_from(form, self._raw, self.pos)
        self.pos += struct.calcsize(form)
        return int(out)

    def read(self, count: int) -> bytes:
        if count < 0 or self.pos + count > len(self._raw):
            raise struct.error("cut off")
        out = self._raw[self.pos : self.pos + count]
        self.pos += count
        return out

    def text(self) -> bytes:
        return self.read(self.number(">H"))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # certificate type, always X.509
        return self.read(self.number(">i"))


def _read_jks(raw: bytes, store: TlsStore) -> _JksEntries:
    try:
        entries, end = _entries(raw)
    except struct.error:
        raise InvalidTlsConfig(f"{store.location}: a broken JKS store") from None
    if store.password:
        made = hashlib.sha1(store.password.encode("utf-16-be") + _WHITENER + raw[:end]).digest()  # noqa: S324 - JKS's own
        if not hmac.compare_digest(made, raw[end : end + _DIGEST_BYTES]):
            raise InvalidTlsConfig(f"{store.location}: the password is wrong, or the store was tampered with")
    return entries


def _entries(raw: bytes) -> tuple[_JksEntries, int]:
    reader, out = _JksReader(raw), _JksEntries([], [])
    reader.read(len(_JKS))
    version = reader.number(">i")
    for _ in range(reader.number(">i")):
        kind = reader.number(">i")
        reader.text()  # alias
        reader.number(">q")  # creation time
        if kind == 1:
            protected = reader.read(reader.number(">i"))
            count = reader.number(">i")
            out.keys.append((protected, [reader.certificate(version) for _ in range(count)]))
        elif kind == 2:
            out.trusted.append(reader.certificate(version))
        else:
            raise struct.error("unknown kind of entry")
    return out, reader.pos


def _unprotected(protected: bytes, password: str, store: TlsStore) -> bytes:
    """Return the decrypted key of a JKS entry: xor with SHA-1 of password and previous digest, then verify its digest.

    Raises:
        InvalidTlsConfig: unknown encryption, or the password is wrong.
    """
    secret = password.encode("utf-16-be")
    start = protected.find(bytes.fromhex("2b060104012a02110101"))  # object identifier of the encryption
    try:
        body = protected[_octet_string_offset(protected, start) :] if start >= 0 else b""
    except (ValueError, IndexError):
        raise InvalidTlsConfig(f"{store.location}: unsupported encryption of a private key") from None
    digest, text = body[:_SALT_BYTES], body[_SALT_BYTES:-_DIGEST_BYTES]
    out = bytearray()
    while len(out) < len(text):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - JKS's own
        out += digest
    key = bytes(a ^ b for a, b in zip(text, out, strict=False))
    made = hashlib.sha1(secret + key).digest()  # noqa: S324 - JKS's own
    if not key or not hmac.compare_digest(made, body[-_DIGEST_BYTES:]):
        raise InvalidTlsConfig(f"{store.location}: the key's password is wrong (ssl.key.password)")
    return key


def _octet_string_offset(raw: bytes, name_at: int) -> int:
    """Return the offset of the contents of the octet string that follows the algorithm identifier at ``name_at``."""
    pos = raw.index(b"\x04", name_at + 10)
    size = raw[pos + 1]
    return pos + 2 + (size & 0x7F if size & 0x80 else 0)
