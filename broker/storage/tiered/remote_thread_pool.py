"""Limits of the concurrent calls of the remote store, one for each kind of work; reads also have a bounded queue.

The threads themselves are those of `ThreadPool.REMOTE_STORAGE`, which all kinds share.

Source: ``RemoteStorageThreadPool.java``, ``RemoteLogManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.broker.storage.tiered.store_calls import StoreCalls

T = TypeVar("T")


class RemoteReadQueueFullError(Exception):
    """Raised for a read that is rejected, as ``remote.log.reader.max.pending.tasks`` reads wait for a thread."""


class RemoteThreadPool:
    """Limit of concurrent calls of the remote store for one kind of work; the limit may change at any time."""

    def __init__(self, calls: StoreCalls, threads: int, max_pending: int | None = None) -> None:
        """Create a pool; no thread is started before it is needed.

        Args:
            calls: Calls of the remote store, to which those of the pool are added.
            threads: Maximum number of calls at a time.
            max_pending: Maximum number of calls that wait for a thread; None: unlimited.
        """
        self._calls = calls
        self._max_pending = max_pending
        self.limiter = trio.CapacityLimiter(threads)
        """Limiter of the calls, also for tasks that make several calls while they hold one token."""

    def resize(self, threads: int) -> None:
        """Set the maximum number of calls at a time; calls in progress are not affected."""
        self.limiter.total_tokens = threads

    @property
    def active_count(self) -> int:
        """Number of tokens in use: by a call in progress, or by a task that holds one for several calls."""
        return self.limiter.borrowed_tokens

    @property
    def pending_count(self) -> int:
        """Number of calls, or of tasks with several calls, that wait for a token."""
        return self.limiter.statistics().tasks_waiting

    @property
    def idle_percent(self) -> float:
        """Share of the limit that is not in use, from 0 to 1."""
        return max(0.0, 1 - self.limiter.borrowed_tokens / self.limiter.total_tokens)

    async def run(self, work: Callable[[], T]) -> T:
        """Wait for a free thread, run a call in it and return its result; an error of the call is raised.

        Raises:
            RemoteReadQueueFullError: Too many calls wait already.
        """
        if self._max_pending is not None and not self.limiter.available_tokens:
            pending = self.pending_count
            if pending >= self._max_pending:
                raise RemoteReadQueueFullError(f"{pending} reads of the remote log are pending")
        async with self.limiter:
            return await self._calls.run(work)
