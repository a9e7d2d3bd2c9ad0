"""TLS settings of a connection: keys, trusted certificates, protocols. `ottla.runtime` creates SSL contexts from them.

Source: ``SslConfigs.java``, ``DefaultSslEngineFactory.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field


class InvalidTlsConfig(OSError):
    """Raised if keys or certificates cannot be used; the message is one line without secrets.

    It is an OSError, as the files may be replaced later.
    """


@dataclass(frozen=True, slots=True)
class TlsStore:
    """Key store or trust store: path of a file in ``location``, or PEM text in ``pem``."""

    location: str = ""
    pem: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    type: str = ""
    """Configured format, ``PEM``, ``PKCS12`` or ``JKS``; the format of the file's first bytes has precedence."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS settings of a listener or a client, as Kafka's ``ssl.*`` settings."""

    keystore: TlsStore | None = None
    key_password: str = field(default="", repr=False)
    truststore: TlsStore | None = None
    """Trusted certificates; None: the system's certificate authorities."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """Cipher suites in Java's names; empty: the defaults of OpenSSL."""
    client_auth: str = "none"
    """``ssl.client.auth`` of a listener: ``none``, ``requested`` or ``required``."""
    verify_hostname: bool = True
    """True if a client verifies that the server's certificate is valid for the host name it connects to."""
