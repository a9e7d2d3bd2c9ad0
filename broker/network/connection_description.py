"""Description of a connection for operators."""

from __future__ import annotations

from typing import NamedTuple


class ConnectionDescription(NamedTuple):
    """Description of a connection, its client and its last request, for operators."""

    host: str
    listener: str
    principal: str
    client_id: str
    software: str
    """Name and version of the client software, sent in ApiVersions (KIP-511); empty if unknown."""
    last_api: str
    """Name and version of the last request, such as ``Fetch v17``; empty before the first request."""
    idle_ms: float
    """Time in ms since the last response; 0 while a request is in progress."""
    is_authenticated: bool
    pending_bytes: int
    """Received bytes of requests whose handling has not begun."""
    throttled_ms: int
    """Time in ms for which quotas have delayed requests in all."""
    api_versions: tuple[str, ...] = ()
    """Name and version of the last request of each API, such as ``Fetch v17``, by API key."""
