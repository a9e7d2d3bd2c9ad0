"""What the runtime itself tells a coordinator's machine, beside the requests of clients."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.errors import ErrorCode


class ShardLoaded(NamedTuple):
    """The shard's log has been replayed; from now on there are requests."""


class ShardUnloaded(NamedTuple):
    """The shard goes: whoever is parked is to be answered with ``error``. What else is decided is not done any more."""

    error: ErrorCode


class TimerExpired(NamedTuple):
    """A timer of this machine is due."""

    key: tuple[str, ...]


class WriteResult(NamedTuple):
    """The fate of records is known: ``context`` came along with them; ``error`` is NONE once they are committed."""

    context: Any
    error: ErrorCode


class RequestDisconnected(NamedTuple):
    """The connection is gone whose request about ``key`` waits with this ticket: nobody will hear the answer."""

    key: str
    pending_request: Any
