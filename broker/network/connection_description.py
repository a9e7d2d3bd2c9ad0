"""Description of a connection for operators: client, software, last request, idle and throttle times."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.requests.peer import LastError, Peer
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeaderCache

MAX_COUNTED_FRAMES = 1000
"""Complete requests in the receive buffer that are counted."""


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
    """Time in ms since the last response or the acceptance; 0 during a request, throttle delay or TLS handshake."""
    is_authenticated: bool
    pending_bytes: int
    """Received bytes of requests whose handling has not begun."""
    in_flight: int
    """Received requests without a response: the one in progress, and complete ones in the receive buffer."""
    throttled_ms: int
    """Time in ms for which quotas have delayed requests in all."""
    muted_ms: float
    """Time in ms for which the connection is still muted, as a quota was exceeded; 0 if it is not."""
    last_error: str
    """API and error code of the last error in a response, such as ``Fetch: OFFSET_OUT_OF_RANGE``; empty if none."""
    last_error_age_ms: float | None
    """Time in ms since that response; None without one."""
    api_versions: tuple[str, ...] = ()
    """Name and version of the last request of each API, such as ``Fetch v17``, by API key."""


def count_frames(buffer: bytearray, start: int, end: int) -> int:
    """Return the number of complete requests in a buffer from ``start`` to ``end``, up to `MAX_COUNTED_FRAMES`."""
    count = 0
    while count < MAX_COUNTED_FRAMES and end - start >= 4:
        start += 4 + int.from_bytes(buffer[start : start + 4], "big")
        count += start <= end
    return count


def describe_connection(
    peer: Peer,
    headers: RequestHeaderCache,
    now_ms: float,
    *,
    idle_ms: float,
    is_authenticated: bool,
    pending_bytes: int,
    in_flight: int,
    throttled_ms: int,
    muted_ms: float,
) -> ConnectionDescription:
    """Return the description of a connection; ``now_ms`` is the monotonic time.

    The client and its last error are those of ``peer``, its last requests those of ``headers``; the other arguments are
    the fields of `ConnectionDescription` with the same names.
    """
    last, error = headers.last_request, peer.last_error
    return ConnectionDescription(
        peer.host,
        peer.listener,
        peer.principal,
        "" if last is None else last[2],
        "" if peer.software_name == "unknown" else f"{peer.software_name} {peer.software_version}",
        "" if last is None else f"{last[0].api_name} v{last[1]}",
        idle_ms,
        is_authenticated,
        pending_bytes,
        in_flight,
        throttled_ms,
        muted_ms,
        "" if error is None else _format_error(error),
        None if error is None else now_ms - error.time_ms,
        tuple(f"{key.api_name} v{version}" for key, version in sorted(headers.versions.items())),
    )


def _format_error(error: LastError) -> str:
    """Return API and name of an error code, such as ``Fetch: OFFSET_OUT_OF_RANGE``."""
    try:
        return f"{error.key.api_name}: {ErrorCode(error.code).name}"
    except ValueError:
        return f"{error.key.api_name}: error {error.code}"
