"""What TLS is spoken with: keys, whom to trust, and how strictly. Only the description; the machine makes it real.

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
    """``PEM``, ``PKCS12``, ``JKS``; what the file itself begins with says more."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """One side of TLS."""

    keystore: TlsStore | None = None
    key_password: str = field(default="", repr=False)
    truststore: TlsStore | None = None
    """None: whom this machine trusts."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """Empty: those of the library."""
    client_auth: str = "none"
    """A server's: ``none``, ``requested``, ``required``."""
    verify_hostname: bool = True
    """A client's: whether the server's certificate must have the name that was dialled."""
