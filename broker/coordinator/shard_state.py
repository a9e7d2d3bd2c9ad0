"""State of a shard, its queued events, and its replies that wait for the high watermark.

Source: ``CoordinatorRuntime.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple
from weakref import ref

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.timers import Timers
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.env.env import Env
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError

MIN_TRACKED_REQUESTS = 256
"""Smallest number of tracked requests at which completed ones are removed."""


class CoordinatorState(Enum):
    """State of a shard, named as in Kafka's ``CoordinatorState``.

    A shard is LOADING while its log is replayed, then ACTIVE. It is FAILED after an exception of the state machine,
    or a malformed record or disk error while loading, until a new shard takes its place; CLOSED once it is unloaded.
    """

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


class ShardDependencies(NamedTuple):
    """Environment, timers and settings of the runtime that a shard uses."""

    env: Env
    timers: Timers
    fail: DiskErrorHandler
    start_task: Callable[[Callable[[], Awaitable[None]]], None]
    write_timeout_ms: int
    acks_all: bool = False
    """True if appends fail below ``min.insync.replicas``, as with acks=all.

    Replies wait for the high watermark in either case.
    """


class QueuedEvent(NamedTuple):
    """Event that waits to be processed, and its request, which fails if the shard is unloaded before.

    ``timer_generation`` is 0 unless the event is an expired timer; it is ignored if the timer was set again or
    cancelled since.
    """

    event: Any
    pending_request: PendingBrokerRequest | None = None
    timer_generation: int = 0


class DeferredReplies(NamedTuple):
    """Replies that wait until the high watermark reaches ``end_offset``, the log end offset after their records.

    ``context``: value for the `WriteResult` that is then delivered to the state machine; None for no `WriteResult`.
    """

    end_offset: int
    deadline_ms: float
    """Write timeout on the monotonic clock (ms): the wall clock may be set back meanwhile."""
    replies: list[RequestReply]
    context: Any


class UnansweredRequests:
    """Weak references to the requests of a shard; all that are still pending fail when the shard fails.

    A state machine that raised an exception may have lost some, so that nothing else in the shard refers to them.
    """

    def __init__(self) -> None:
        self._references: list[ref[PendingBrokerRequest]] = []
        self._limit = MIN_TRACKED_REQUESTS

    def add(self, pending: PendingBrokerRequest) -> None:
        """Track a pending request until it is completed or garbage collected, without a strong reference to it."""
        references = self._references
        references.append(ref(pending))
        if len(references) >= self._limit:
            references[:] = [one for one in references if getattr(one(), "answer", one) is None]
            self._limit = max(MIN_TRACKED_REQUESTS, 2 * len(references))

    def fail_all(self, error: ErrorCode) -> None:
        """Complete all tracked requests that are still pending with an error."""
        for reference in self._references:
            pending = reference()
            if pending is not None:
                pending.deliver(ProtocolError(error))
        self._references.clear()
