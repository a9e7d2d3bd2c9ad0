"""Events from the runtime to a coordinator's state machine, besides client requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.errors import ErrorCode


class ShardLoaded(NamedTuple):
    """The shard's log has been replayed; from now on there are requests."""


class ShardUnloaded(NamedTuple):
    """Unloading of the shard: pending requests fail with ``error``; no other effect is applied."""

    error: ErrorCode


class TimerExpired(NamedTuple):
    """A timer of this machine is due."""

    key: tuple[str, ...]


class WriteResult(NamedTuple):
    """Result of a write with its ``context``; ``error`` is NONE once the records are committed."""

    context: Any
    error: ErrorCode


class RequestDisconnected(NamedTuple):
    """Disconnection of the client whose request about ``key`` is pending."""

    key: str
    pending_request: Any
