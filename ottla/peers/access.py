"""What a listener wants of who comes: encryption, and a login.

Apart from what reads settings and speaks, so that who needs neither does not load it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.world.tls import Tls

if TYPE_CHECKING:
    from ottla.peers.tickets import TicketSource

NEVER_MS = float("-inf")


@dataclass(slots=True)
class KeptToken:
    """The token that was given last, and when the next may be asked for: by the monotonic clock."""

    text: str = ""
    renew_ms: float = NEVER_MS
    """From when on the next one is asked for."""
    ends_ms: float = NEVER_MS
    is_refused: bool = False
    """Whether somebody it was shown to did not take it."""
    wait_ms: float = 0.0
    not_before_ms: float = NEVER_MS
    """Nobody is asked sooner: none was given last time, or it was refused."""
    why: str = ""
    """Why none was given."""


@dataclass(frozen=True, slots=True)
class BearerSource:
    """Where tokens for OAUTHBEARER come from."""

    url: str
    """A file's, or that of who gives tokens to those who know the secret."""
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    tls: Tls | None = None
    kept: KeptToken = field(default_factory=KeptToken, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Login:
    """Whom to be."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_token: bool = False
    """Whether user and password are a delegation token's id and hmac."""
    source: BearerSource | None = None
    """Where a token comes from, which is then shown instead of both."""
    tickets: TicketSource | None = None
    """Where tickets come from, where those are shown."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a listener wants of who comes."""

    tls: Tls | None = None
    login: Login | None = None


OPEN = Access()
"""Nothing."""
