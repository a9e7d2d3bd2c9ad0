"""Pending request to a coordinator or share partition, with a reply that is delivered within this process."""

from __future__ import annotations

from typing import Any

import trio


class PendingBrokerRequest:
    """Future of the reply to a request in this process: a message, a value, or a `ProtocolError` that is not raised."""

    __slots__ = ("__weakref__", "_event", "answer")

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        self.answer: Any = None

    def deliver(self, answer: Any) -> None:
        """Complete the request with a reply, which must not be None; later replies are ignored."""
        if self.answer is None:
            self.answer = answer
            if self._event is not None:
                self._event.set()

    async def wait(self) -> Any:
        """Wait for the reply and return it; an error is returned as a `ProtocolError`. Only one task may wait."""
        if self.answer is None:
            self._event = trio.Event()
            await self._event.wait()
        return self.answer
