"""How long the event loop is at work for one request: waiting does not count, nor what others do meanwhile.

It stands around a coroutine and looks at the clock whenever that one begins or stops to run. Loaded once requests are
timed.

Source: ``RequestChannel.Request.requestThreadTimeNanos``, ``KafkaChannel.addNetworkThreadTimeNanos`` (apache/kafka
4.3.1); there it is the time of threads.

From KIP-124.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Stopwatch:
    """One request's."""

    __slots__ = ("_now_ms", "_since_ms", "_spent_ms", "client_id", "is_exempt")

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._since_ms: float | None = None
        self._spent_ms = 0.0
        self.client_id: str | None = None
        """Who asked; None where the request had no answer that is counted."""
        self.is_exempt = False
        """Whether it came from another broker, in its own affairs."""

    def lap_ms(self) -> float:
        """How long the loop was at work since this was asked last."""
        spent_ms, self._spent_ms = self._spent_ms, 0.0
        if self._since_ms is not None:
            now_ms = self._now_ms()
            spent_ms += now_ms - self._since_ms
            self._since_ms = now_ms
        return spent_ms

    @types.coroutine
    def around(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run ``work``, and time it."""
        resume: Callable[[Any], Any] = work.send
        value: Any = None
        while True:
            self._since_ms = self._now_ms()
            try:
                asked = resume(value)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._spent_ms += self._now_ms() - self._since_ms
                self._since_ms = None
            try:
                value, resume = (yield asked), work.send
            except BaseException as error:  # a cancellation is the work's to see
                value, resume = error, work.throw
