"""Pending request with its response or error; the caller may be cancelled meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

ChargeQuota = Callable[[int], None]
"""Callback that charges a number of created or deleted partitions to a quota; raises ProtocolError if exceeded."""


def no_quota(count: int) -> None:
    """Charge no quota."""


class PendingRequest:
    """A pending request and its response."""

    def __init__(self, request: Any, version: int = 0, spend: ChargeQuota = no_quota) -> None:
        self.request = request
        self.version = version
        self.charge_quota = spend
        self._done = trio.Event()
        self._response: Any = None
        self._error: Exception | None = None

    def complete(self, answer: Any) -> None:
        """Set the response."""
        self._response = answer
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Set an error as the result, unless there is a result already."""
        if not self._done.is_set():
            self._error = error
            self._done.set()

    async def wait(self) -> Any:
        """Wait until the records of the response are committed and return it.

        Raises:
            ProtocolError: NOT_CONTROLLER, leadership was lost.
            OSError: the metadata log could not be written; the node stops.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._response
