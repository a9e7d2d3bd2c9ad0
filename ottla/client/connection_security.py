"""Security settings of a client connection: TLS and SASL credentials, with the cached token of OAUTHBEARER.

The modules that parse them and authenticate are separate, so that a plaintext connection does not import them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.env.tls import TlsConfig

if TYPE_CHECKING:
    from ottla.client.gssapi_client import KerberosLogin

NEVER_MS = float("-inf")


class AuthenticationFailed(OSError):
    """Raised if SASL authentication fails: mechanism or credentials rejected, no Kerberos ticket, or a bad message."""


@dataclass(slots=True)
class CachedToken:
    """Last OAUTHBEARER token of a source, and the times of its renewal, in ms of the monotonic clock."""

    text: str = ""
    renew_ms: float = NEVER_MS
    """Time from which on a new token is requested."""
    expiry_ms: float = NEVER_MS
    is_rejected: bool = False
    """True if a broker rejected the cached token."""
    backoff_ms: float = 0.0
    not_before_ms: float = NEVER_MS
    """Earliest time of the next request for a token, after a failed one or after a rejected token."""
    error: str = ""
    """Error of the last token request that failed, which a later success does not clear; empty before."""


@dataclass(frozen=True, slots=True)
class BearerTokenSource:
    """Source of OAUTHBEARER tokens: a file or a token endpoint, with the client's credentials for it."""

    url: str
    """``file:`` URL of a file with the token, or URL of the token endpoint."""
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsConfig | None = None
    cache: CachedToken = field(default_factory=CachedToken, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """SASL mechanism of a client and its credentials."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_delegation_token: bool = False
    """True if user and password are a delegation token's id and hmac."""
    token_source: BearerTokenSource | None = None
    """Token source of OAUTHBEARER, instead of user and password."""
    kerberos: KerberosLogin | None = None
    """Kerberos credentials of GSSAPI, instead of user and password."""


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """Security settings of a client connection: TLS (None: plaintext) and SASL credentials (None: no SASL)."""

    tls: TlsConfig | None = None
    login: SaslLogin | None = None


NO_SECURITY = ConnectionSecurity()
"""Settings of the security protocol PLAINTEXT."""
