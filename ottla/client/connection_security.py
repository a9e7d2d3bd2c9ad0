"""What a listener wants of who comes: encryption, and a login.

Apart from what reads settings and speaks, so that who needs neither does not load it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.env.tls import TlsConfig

if TYPE_CHECKING:
    from ottla.client.gssapi_client import KerberosLogin

NEVER_MS = float("-inf")


@dataclass(slots=True)
class CachedToken:
    """The token that was given last, and when the next may be asked for: by the monotonic clock."""

    text: str = ""
    renew_ms: float = NEVER_MS
    """From when on the next one is asked for."""
    expiry_ms: float = NEVER_MS
    is_rejected: bool = False
    """True if somebody it was shown to did not take it."""
    backoff_ms: float = 0.0
    not_before_ms: float = NEVER_MS
    """Nobody is asked sooner: none was given last time, or it was refused."""
    error: str = ""
    """Why none was given."""


@dataclass(frozen=True, slots=True)
class BearerTokenSource:
    """Where tokens for OAUTHBEARER come from."""

    url: str
    """A file's, or that of who gives tokens to those who know the secret."""
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsConfig | None = None
    cache: CachedToken = field(default_factory=CachedToken, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """Whom to be."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_delegation_token: bool = False
    """True if user and password are a delegation token's id and hmac."""
    token_source: BearerTokenSource | None = None
    """Where a token comes from, which is then shown instead of both."""
    kerberos: KerberosLogin | None = None
    """Where tickets come from, where those are shown."""


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """What a listener wants of who comes."""

    tls: TlsConfig | None = None
    login: SaslLogin | None = None


NO_SECURITY = ConnectionSecurity()
"""Nothing."""
