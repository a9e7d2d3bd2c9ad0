"""Work that is many small steps, cut so that everybody else gets the event loop in between."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Protocol, TypeVar

import trio

from ottla.env.env import Env

SLICE_MS = 10.0
BACKGROUND_SLICE_MS = 2.0
"""What goes on beside the requests takes smaller slices than they do."""


class WaitCondition(Protocol):
    """Something that is not there yet."""

    async def wait(self) -> Any:
        """Wait until it is there."""


T = TypeVar("T")
Job = Generator[None, None, T]
"""Work cut into steps, none of which takes long."""
WaitingJob = Generator[WaitCondition | None, None, T]
"""The same where a step may also yield what must be waited for before the next."""


class TimeSlice:
    """How long somebody has worked since others could.

    ``resume`` and ``suspend`` stand around the work, so that time spent waiting does not count; ``is_expired`` says
    that the slice is used up, and ``yield_now`` lets the others run. Who has a loop of his own says `maybe_yield` after
    each round::

        for log in logs:
            look_at(log)
            await time_slice.maybe_yield()

    A handler with many rows writes them as `Job` and hands those to `start`.
    """

    __slots__ = ("_env", "_limit_ms", "_used_ms", "started_ms")

    def __init__(self, env: Env, limit_ms: float = SLICE_MS) -> None:
        self._env = env
        self._limit_ms = limit_ms
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

    def is_used_up(self) -> bool:
        """Whether the others must have their turn."""
        return self._used_ms + self._env.monotonic_ms() - self.started_ms >= self._limit_ms

    async def yield_now(self) -> None:
        """Let the others run."""
        await trio.lowlevel.checkpoint()
        self._used_ms = 0.0
        self.started_ms = self._env.monotonic_ms()

    async def maybe_yield(self) -> None:
        """One step is done."""
        if self.is_used_up():
            await self.yield_now()

    async def run(self, steps: WaitingJob[T]) -> T:
        """Go through the steps, resting where the slice is used up; gives their result. They are closed in any case."""
        try:
            while True:
                try:
                    awaited = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if awaited is not None:
                    await self._wait(awaited)
                elif self.is_used_up():
                    await self.yield_now()
        finally:
            steps.close()

    def start(self, steps: WaitingJob[T | Awaitable[T]]) -> T | Awaitable[T]:
        """Go through the steps: at once while they fit into this turn, else gives the way on, to be waited for.

        What they give may itself be something to wait for.
        """
        while True:
            try:
                awaited = next(steps)
            except StopIteration as end:
                result: T | Awaitable[T] = end.value
                return result
            if awaited is not None or self.is_used_up():
                return self._continue(steps, awaited)

    async def _continue(self, steps: WaitingJob[T | Awaitable[T]], awaited: WaitCondition | None) -> T:
        if awaited is not None:
            try:
                await self._wait(awaited)
            except BaseException:
                steps.close()
                raise
        result = await self.run(steps)
        return await result if isinstance(result, Awaitable) else result

    async def _wait(self, awaited: WaitCondition) -> None:
        self.suspend()
        await awaited.wait()
        self.resume()
