"""States of a shard, its queued events, and its responses that wait for the high watermark.

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
"""References to tickets at which those of answered ones are dropped, at the earliest."""


class CoordinatorState(Enum):
    """State of a shard, as ``CoordinatorState``."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


class ShardDependencies(NamedTuple):
    """Parts of the node that a shard uses."""

    env: Env
    timers: Timers
    fail: DiskErrorHandler
    start_task: Callable[[Callable[[], Awaitable[None]]], None]
    write_timeout_ms: int
    acks_all: bool = False
    """True if appends fail while too few replicas are in sync, as with acks=all; else they wait for them."""


class QueuedEvent(NamedTuple):
    """Queued event, with the request that fails if it is never processed, and the generation of its timer."""

    event: Any
    pending_request: PendingBrokerRequest | None = None
    timer_generation: int = 0


class DeferredReplies(NamedTuple):
    """Answers that wait until the partition is committed up to ``end_offset``."""

    end_offset: int
    deadline_ms: float
    """On the monotonic clock: the wall clock may be set back meanwhile."""
    replies: list[RequestReply]
    context: Any


class UnansweredRequests:
    """Weak references to the tickets that came with events, to answer those that a state machine lost."""

    def __init__(self) -> None:
        self._references: list[ref[PendingBrokerRequest]] = []
        self._limit = MIN_TRACKED_REQUESTS

    def add(self, ticket: PendingBrokerRequest) -> None:
        """Remember a ticket as long as it is waited for."""
        references = self._references
        references.append(ref(ticket))
        if len(references) >= self._limit:
            references[:] = [one for one in references if getattr(one(), "answer", one) is None]
            self._limit = max(MIN_TRACKED_REQUESTS, 2 * len(references))

    def fail_all(self, error: ErrorCode) -> None:
        """Answer all tickets that have no answer with an error."""
        for reference in self._references:
            ticket = reference()
            if ticket is not None:
                ticket.deliver(ProtocolError(error))
        self._references.clear()
