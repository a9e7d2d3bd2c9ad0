"""Timer of the event loop time of a coroutine, without its waits and without the time of other tasks.

It wraps the coroutine and reads the clock whenever that is resumed or suspended.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class TaskTimer:
    """Timer of the event loop time in ms of the coroutines that `run` runs, one after another."""

    __slots__ = ("_now_ms", "_since_ms", "_spent_ms")

    def __init__(self, now_ms: Callable[[], float]) -> None:
        """Create a timer; ``now_ms`` returns the time of the monotonic clock in ms."""
        self._now_ms = now_ms
        self._since_ms: float | None = None
        self._spent_ms = 0.0

    def lap_ms(self) -> float:
        """Return the event loop time in ms since the last call, at first since the start."""
        spent_ms, self._spent_ms = self._spent_ms, 0.0
        if self._since_ms is not None:
            now_ms = self._now_ms()
            spent_ms += now_ms - self._since_ms
            self._since_ms = now_ms
        return spent_ms

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run the coroutine ``work``, time it, and return its result."""
        resume: Callable[[Any], Any] = work.send
        value: Any = None
        while True:
            self._since_ms = self._now_ms()
            try:
                yielded = resume(value)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._spent_ms += self._now_ms() - self._since_ms
                self._since_ms = None
            try:
                value, resume = (yield yielded), work.send
            except BaseException as error:  # including a cancellation
                value, resume = error, work.throw
