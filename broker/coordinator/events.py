"""Events of the coordinator runtime for a coordinator's state machine, besides client requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.errors import ErrorCode


class ShardLoaded(NamedTuple):
    """Event: the log of the shard has been replayed; client requests follow.

    Of the effects returned for it, only timers and ``immediate_replies`` are used; records are not allowed.
    """


class ShardUnloaded(NamedTuple):
    """Event: the shard is unloaded.

    Pending requests must fail with ``error``; of the effects returned for it, only ``replies`` are used.
    """

    error: ErrorCode


class TimerExpired(NamedTuple):
    """Event: the timer that the state machine set with this key (`ScheduleTimer`) has expired."""

    key: tuple[str, ...]


class WriteResult(NamedTuple):
    """Event: the records of an `Effects` were committed (``error`` is NONE) or their write failed or timed out.

    ``context`` is the value of `Effects.on_commit_outcome`. After a timeout the records may still be committed. The
    event follows effects without records as well. ``error`` is the code for clients (`to_client_error`), that of the
    unloading if the shard is unloaded before the commit.
    """

    context: Any
    error: ErrorCode


class RequestDisconnected(NamedTuple):
    """Event: the client of a pending request to the group coordinator has disconnected. ``key``: its group id."""

    key: str
    pending_request: Any
