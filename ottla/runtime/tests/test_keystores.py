"""Unusable key and trust stores: rejected with one line, without a prompt."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.env.tls import InvalidTlsConfig, TlsConfig, TlsStore
from ottla.runtime.ssl_contexts import client_ssl_context, server_ssl_context

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")


def jks(where: Path, *entries: bytes) -> TlsStore:
    """Write a keystore file as keytool does."""
    body = b"\xfe\xed\xfe\xed" + struct.pack(">ii", 2, len(entries)) + b"".join(entries)
    path = where / "store.jks"
    path.write_bytes(body + hashlib.sha1("secret".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest())
    return TlsStore(str(path), password="secret")


def key_entry(protected: bytes) -> bytes:
    head = struct.pack(">iH1sq", 1, 1, b"a", 0)
    return head + struct.pack(">i", len(protected)) + protected + struct.pack(">i", 0)


def test_truststore_without_certificate_raises_invalid_tls_config(tmp_path: Path, keys: TlsStore) -> None:
    """A trust store after removal of its last certificate stopped every broker configured with it."""
    with pytest.raises(InvalidTlsConfig, match="no certificate that can be read"):
        server_ssl_context(TlsConfig(keys, truststore=jks(tmp_path), client_auth="required"))
    with pytest.raises(InvalidTlsConfig, match="no certificate that can be read"):
        client_ssl_context(TlsConfig(truststore=jks(tmp_path)))


def test_truststore_with_key_only_raises_invalid_tls_config(tmp_path: Path, keys: TlsStore) -> None:
    pytest.importorskip("cryptography")
    store = TlsStore(str(tmp_path / "key.p12"), password="secret")
    creation = ["openssl", "pkcs12", "-export", "-inkey", keys.location, "-in", keys.location, "-nocerts"]
    subprocess.run([*creation, "-out", store.location, "-passout", "pass:secret"], check=True, capture_output=True)
    with pytest.raises(InvalidTlsConfig, match="no certificate that can be read"):
        server_ssl_context(TlsConfig(keys, truststore=store, client_auth="required"))


_NAME = bytes.fromhex("2b060104012a02110101")
"""Object identifier of the key protection in a JKS file."""


@pytest.mark.parametrize("protected", [_NAME, _NAME + b"\x05\0", _NAME + b"\x04", _NAME + b"\x04\xff", b""])
def test_jks_malformed_key_raises_invalid_tls_config(tmp_path: Path, protected: bytes) -> None:
    with pytest.raises(InvalidTlsConfig, match="key"):
        server_ssl_context(TlsConfig(jks(tmp_path, key_entry(protected))))


def test_tls_config_with_nul_character_raises_invalid_tls_config(keys: TlsStore) -> None:
    with pytest.raises(InvalidTlsConfig, match="invalid file name"):
        server_ssl_context(TlsConfig(TlsStore("/tmp/a\0b")))
    with pytest.raises(InvalidTlsConfig, match="no supported cipher suite"):
        server_ssl_context(TlsConfig(keys, cipher_suites=("\0",)))


AT_A_TERMINAL = """
import os, sys
os.open(sys.argv[1], os.O_RDWR)  # of a session without a terminal this is the terminal now
from ottla.env.tls import InvalidTlsConfig, TlsConfig, TlsStore
from ottla.runtime.ssl_contexts import server_ssl_context
try:
    server_ssl_context(TlsConfig(TlsStore(sys.argv[2])))
except InvalidTlsConfig as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["pkcs8", "ec"])
def test_encrypted_key_without_password_raises_without_prompt(tmp_path: Path, keys: TlsStore, kind: str) -> None:
    """The ssl module prompts on the terminal, which would block all clients."""
    creation = ["openssl", "pkcs8", "-topk8"] if kind == "pkcs8" else ["openssl", "ec", "-aes128"]
    made = subprocess.run(
        [*creation, "-in", keys.location, "-passout", "pass:secret"], check=True, capture_output=True
    ).stdout
    assert b"ENCRYPTED" in made
    path = tmp_path / "keys.pem"
    path.write_bytes(made + Path(keys.location).read_bytes().partition(b"-----END PRIVATE KEY-----\n")[2])
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-c", AT_A_TERMINAL, os.ttyname(theirs), str(path)]
        completed = subprocess.run(
            command, stdin=theirs, capture_output=True, text=True, timeout=20, start_new_session=True, check=True
        ).stdout
    finally:
        os.close(ours)
        os.close(theirs)
    assert "no usable key" in completed
    assert server_ssl_context(TlsConfig(TlsStore(str(path)), "secret"))
