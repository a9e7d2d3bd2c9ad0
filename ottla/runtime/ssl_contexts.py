"""Creation of SSL contexts from a `TlsConfig`. A node imports it only if TLS is used.

Keys that are configured as text are never written to a disk: the ssl module requires a path, and gets that of a file in
memory.

Source: ``DefaultSslEngineFactory.java``, ``SslFactory.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from typing import Any

from ottla.env.tls import InvalidTlsConfig, TlsConfig, TlsStore
from ottla.runtime.keystores import load_certificates_pem, load_key_pem

_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the SSL context for connections that a listener accepts; the first call sets ``sys.unraisablehook``.

    Raises:
        InvalidTlsConfig: keys or certificates cannot be used; OSError: a file cannot be read.
    """
    if tls.keystore is None:
        raise InvalidTlsConfig(
            "a listener with TLS needs a key and a certificate: ssl.keystore.location, or ssl.keystore.key"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _common(context, tls)
    if not isinstance(sys.unraisablehook, _QuietCallback):
        sys.unraisablehook = _QuietCallback(sys.unraisablehook)
    context.sni_callback = _record_sni_host
    context.verify_mode = _CLIENT_AUTH.get(tls.client_auth, ssl.CERT_NONE)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, tls.truststore, ssl.Purpose.CLIENT_AUTH)
    return context


class _QuietCallback:
    """``sys.unraisablehook`` that ignores the decoding error of a TLS server name (SNI) that is not text.

    Any client may send one, and the ssl module has no other way to handle it. The handshake fails and is logged.
    """

    def __init__(self, before: Callable[[Any], object]) -> None:
        self._before = before

    def __call__(self, unraisable: Any) -> None:
        is_name = isinstance(getattr(unraisable, "object", None), bytes)
        if not (is_name and isinstance(unraisable.exc_value, UnicodeDecodeError)):
            self._before(unraisable)


def _record_sni_host(sock: Any, name: str | None, context: ssl.SSLContext) -> None:
    """Store the server name (SNI) that a client requests on ``sock``, for `sni_host`; callback of the ssl module."""
    sock.dialled_as = name


def sni_host(sock: Any) -> str | None:
    """Return the server name (SNI) that the client requested in the handshake; None if it sent none."""
    name: str | None = getattr(sock, "dialled_as", None)
    return name


def client_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the SSL context for connections that this process opens.

    Raises:
        InvalidTlsConfig: keys or certificates cannot be used; OSError: a file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_hostname
    _common(context, tls)
    _load_trust(context, tls.truststore, ssl.Purpose.SERVER_AUTH)
    return context


def _common(context: ssl.SSLContext, tls: TlsConfig) -> None:
    unknown = [x for x in tls.protocols if x.upper() not in _VERSIONS]
    versions = sorted(_VERSIONS[x.upper()] for x in tls.protocols if x.upper() in _VERSIONS)
    if unknown or not versions:
        raise InvalidTlsConfig(
            f"ssl.enabled.protocols: {unknown[0] if unknown else 'none'}: TLSv1.2 and TLSv1.3 are supported"
        )
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, every certificate in the trust store is trusted
    if tls.cipher_suites:
        try:
            context.set_ciphers(":".join(_openssl_cipher(x) for x in tls.cipher_suites))
        except (ssl.SSLError, ValueError):  # NUL in a cipher name
            raise InvalidTlsConfig(
                f"ssl.cipher.suites: no supported cipher suite in {', '.join(tls.cipher_suites)}"
            ) from None
    if tls.keystore is not None:
        _load_keys(context, tls.keystore, tls.key_password)


def _openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a cipher suite in Java's form (``TLS_RSA_WITH_AES_256_GCM_SHA384``); else the name."""
    exchange, has_with, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not has_with:
        return name
    rest = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_POLY1305_SHA256", "_POLY1305")
    exchange = "" if exchange == "RSA" else exchange + "-"
    return (exchange + rest.replace("_CBC", "")).replace("_", "-")


def _load_keys(context: ssl.SSLContext, store: TlsStore, key_password: str) -> None:
    pem, password = load_key_pem(store, key_password)
    number = os.memfd_create("keys")
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(pem)
        # For an encrypted key without a password the library would prompt at the terminal and block the process.
        context.load_cert_chain(f"/proc/self/fd/{number}", password=password or "")
    except (ssl.SSLError, ValueError):
        where = store.location or "ssl.keystore.key"
        raise InvalidTlsConfig(
            f"{where}: no usable key and certificate, they do not belong together, or the password is wrong or missing"
        ) from None
    finally:
        os.close(number)


def _load_trust(context: ssl.SSLContext, store: TlsStore | None, purpose: ssl.Purpose) -> None:
    if store is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=load_certificates_pem(store))
    except (ssl.SSLError, ValueError):  # no valid certificate
        raise InvalidTlsConfig(
            f"{store.location or 'ssl.truststore.certificates'}: no certificate that can be read"
        ) from None
