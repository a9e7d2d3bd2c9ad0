"""Future of a request to the controller or Raft: request, response or error; the waiting caller may be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

ChargeQuota = Callable[[int], None]
"""Charges created or deleted partitions to the controller mutation quota; raises ProtocolError if it is exceeded."""


def no_quota(count: int) -> None:
    """Charge no quota for ``count`` partitions: a `ChargeQuota` without a limit."""


class PendingRequest:
    """Future of a request to a state machine (controller, Raft), or of one that Raft sends; completed or failed once.

    The caller awaits `wait`; the runtime of the state machine calls `complete` or `fail`. ``version``: API version.
    """

    def __init__(self, request: Any, version: int = 0, charge_quota: ChargeQuota = no_quota) -> None:
        self.request = request
        self.version = version
        self.charge_quota = charge_quota
        self._done = trio.Event()
        self._response: Any = None
        self._error: Exception | None = None

    def complete(self, answer: Any) -> None:
        """Set the response ``answer`` and wake the caller of `wait`; called once, and not after `fail`."""
        self._response = answer
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Set the exception for `wait` to raise; no effect if the request is completed or failed already."""
        if not self._done.is_set():
            self._error = error
            self._done.set()

    async def wait(self) -> Any:
        """Wait for `complete` or `fail`, by the controller after the commit of the records; return the response.

        A cancelled wait does not cancel the request.

        Raises:
            ProtocolError: NOT_CONTROLLER: leadership was lost; or the error of the request.
            OSError: the metadata log could not be written; the node stops.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._response
