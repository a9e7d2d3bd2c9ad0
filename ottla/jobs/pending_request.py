"""Something asked for, and its answer once there is one: whoever asked may have gone by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

ChargeQuota = Callable[[int], None]
"""Hears how many partitions a change is about to make or remove; raises ProtocolError where those are too many."""


def no_quota(count: int) -> None:
    """Nobody counts what is changed."""


class PendingRequest:
    """A request on its way, and its answer once there is one."""

    def __init__(self, request: Any, version: int = 0, spend: ChargeQuota = no_quota) -> None:
        self.request = request
        self.version = version
        self.charge_quota = spend
        self._done = trio.Event()
        self._response: Any = None
        self._error: Exception | None = None

    def complete(self, answer: Any) -> None:
        """The answer may leave."""
        self._response = answer
        self._done.set()

    def fail(self, error: Exception) -> None:
        """There will be no answer but this error, unless there is one already."""
        if not self._done.is_set():
            self._error = error
            self._done.set()

    async def wait(self) -> Any:
        """The answer, once everything it says is committed.

        Raises:
            ProtocolError: NOT_CONTROLLER, leadership was lost.
            OSError: the metadata log could not be written; the node stops.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._response
