"""TLS settings: keys, trusted certificates and verification. `ottla.runtime` creates the contexts.

Source: ``SslConfigs.java``, ``DefaultSslEngineFactory.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field


class InvalidTlsConfig(OSError):
    """Keys or certificates that cannot be used; one line for the user, without a secret in it. Files may change."""


@dataclass(frozen=True, slots=True)
class TlsStore:
    """Keys or certificates: a file, or the text itself where it is PEM."""

    location: str = ""
    pem: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    type: str = ""
    """``PEM``, ``PKCS12`` or ``JKS``; the first bytes of the file take precedence."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS settings of one side of a connection."""

    keystore: TlsStore | None = None
    key_password: str = field(default="", repr=False)
    truststore: TlsStore | None = None
    """None: the system's authorities."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """Empty: those of the library."""
    client_auth: str = "none"
    """A server's: ``none``, ``requested``, ``required``."""
    verify_hostname: bool = True
    """A client's: whether the server's certificate must have the name that was dialled."""
