"""A place to wait for one answer of a coordinator."""

from __future__ import annotations

from typing import Any

import trio


class PendingBrokerRequest:
    """Pending response: a message, a value, or a `ProtocolError`."""

    __slots__ = ("__weakref__", "_event", "answer")

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        self.answer: Any = None

    def deliver(self, answer: Any) -> None:
        """Set the result; later ones are ignored."""
        if self.answer is None:
            self.answer = answer
            if self._event is not None:
                self._event.set()

    async def wait(self) -> Any:
        """Wait for the answer."""
        if self.answer is None:
            self._event = trio.Event()
            await self._event.wait()
        return self.answer
