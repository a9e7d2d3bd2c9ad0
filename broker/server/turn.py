"""A share of the event loop: work goes on for 10 ms, then everybody else gets their turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import trio

from ottla.world.env import Env

T = TypeVar("T")
SLICE_MS = 10.0
_STEPS = 32


class Turn:
    """How long somebody has worked since others could.

    ``resume`` and ``suspend`` stand around the work, so that time spent waiting does not count; ``is_over`` says that
    the slice is used up, and ``rest`` lets the others run. A handler with many rows asks between two of them::

        if context.turn.is_over():
            await context.turn.rest()
    """

    __slots__ = ("_env", "_used_ms", "started_ms")

    def __init__(self, env: Env) -> None:
        self._env = env
        self.started_ms = env.monotonic_ms()
        self._used_ms = 0.0

    def suspend(self) -> float:
        """The work stops, to wait for something; gives the time, in milliseconds of the monotonic clock."""
        now = self._env.monotonic_ms()
        self._used_ms += now - self.started_ms
        self.started_ms = now
        return now

    def resume(self) -> None:
        """The work goes on."""
        self.started_ms = self._env.monotonic_ms()

    def is_over(self) -> bool:
        """Whether the others must have their turn."""
        return self._used_ms + self._env.monotonic_ms() - self.started_ms >= SLICE_MS

    async def rest(self) -> None:
        """Let the others run."""
        await trio.lowlevel.checkpoint()
        self._used_ms = 0.0
        self.started_ms = self._env.monotonic_ms()

    async def through(self, steps: Generator[None, None, T]) -> T:
        """Go through work that is cut into small steps, resting where a slice is used up; gives its result."""
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            count += 1
            if count % _STEPS == 0 and self.is_over():
                await self.rest()
