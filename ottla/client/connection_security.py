"""Security settings of a connection: TLS and SASL login.

Apart from the modules that parse them and authenticate, so that a plaintext connection does not load those.
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
    """True if a broker rejected the token."""
    backoff_ms: float = 0.0
    not_before_ms: float = NEVER_MS
    """Earliest time of the next request for a token, after a failed one or after a rejected token."""
    error: str = ""
    """Error of the last request for a token."""


@dataclass(frozen=True, slots=True)
class BearerTokenSource:
    """Source of tokens for OAUTHBEARER."""

    url: str
    """URL of a file with the token, or of the token endpoint."""
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsConfig | None = None
    cache: CachedToken = field(default_factory=CachedToken, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """Credentials of a SASL login."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_delegation_token: bool = False
    """True if user and password are a delegation token's id and hmac."""
    token_source: BearerTokenSource | None = None
    """Source of the token; replaces user and password."""
    kerberos: KerberosLogin | None = None
    """Kerberos credentials of GSSAPI."""


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """Security settings for connecting to a listener: TLS and SASL login."""

    tls: TlsConfig | None = None
    login: SaslLogin | None = None


NO_SECURITY = ConnectionSecurity()
"""No TLS and no login."""
