"""Calls of the remote store in threads, which a node that stops abandons if they do not return.

A call blocks for as long as its network or file system does. The task that made it waits for its end, also if it is
cancelled, so that the threads stay bounded. Only a stop ends the wait: as after a crash, the next leader removes what
an abandoned copy has stored.

Source: ``RemoteLogManager.close``, ``ThreadUtils.shutdownExecutorServiceQuietly`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.broker.storage.tiered.remote_storage import RetriableRemoteStorageError
from ottla.env.env import Env, ThreadPool

T = TypeVar("T")
logger = logging.getLogger("ottla.tiered")
STOP_TIMEOUT_S = 5.0
"""Time in s that a node that stops waits for calls in progress. Kafka interrupts them after 10 s."""


class StoreCalls:
    """Calls of the remote store in progress."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._scopes: set[trio.CancelScope] = set()
        """Shielded scope of each call in progress."""
        self._ended = trio.Event()
        """Event for the end of the last call in progress."""
        self.is_stopped = False
        """True once the node stops."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run a call in a thread and return its result; an error of the call is raised.

        A cancelled task waits for the end of its call.

        Raises:
            RetriableRemoteStorageError: the call was abandoned.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True) as scope:
            self._scopes.add(scope)
            try:
                return await self._env.in_thread(work, ThreadPool.REMOTE_STORAGE)
            finally:
                self._scopes.discard(scope)
                if not self._scopes:
                    self._ended.set()
        await trio.lowlevel.checkpoint_if_cancelled()  # the node stops
        raise RetriableRemoteStorageError("the call was abandoned")

    async def run_until_stopped(self) -> None:
        """Wait for the stop of the node, which cancels this task, then for the calls, at most `STOP_TIMEOUT_S`.

        Those that are still in progress then are abandoned: their threads continue, and their results are dropped.
        """
        try:
            await trio.Event().wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._end()

    async def _end(self) -> None:
        self.is_stopped = True
        if self._scopes:
            self._ended = trio.Event()
            with self._env.timeout(STOP_TIMEOUT_S):
                await self._ended.wait()
        if self._scopes:
            logger.warning(
                "Abandoning calls of the remote store: %d have not ended %d s after the stop of the node",
                len(self._scopes),
                STOP_TIMEOUT_S,
            )
            for scope in self._scopes:
                scope.cancel()
