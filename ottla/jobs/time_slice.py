"""Runner of cooperative jobs: time slices on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable
from types import CoroutineType
from typing import Any, TypeVar, cast

import trio

from ottla.env.env import Env
from ottla.jobs.job import Job

SLICE_MS = 10.0
"""Time slice of the requests of a connection."""
BACKGROUND_SLICE_MS = 2.0
"""Time slice of work in the background: shorter, as requests wait for it."""

T = TypeVar("T")


class TimeSlice:
    """Runner of jobs that lets other tasks run whenever its time slice is used up.

    Jobs that run one after the other share the slice. Time spent waiting does not count: `suspend` and `resume` stand
    around it.
    """

    __slots__ = ("_env", "_limit_ms", "_used_ms", "started_ms")

    def __init__(self, env: Env, limit_ms: float = SLICE_MS) -> None:
        self._env = env
        self._limit_ms = limit_ms
        self.started_ms = env.monotonic_ms()
        self._used_ms = 0.0

    def suspend(self) -> float:
        """Stop counting time before a wait; return the time of the monotonic clock in milliseconds."""
        now = self._env.monotonic_ms()
        self._used_ms += now - self.started_ms
        self.started_ms = now
        return now

    def resume(self) -> None:
        """Count time again after a wait."""
        self.started_ms = self._env.monotonic_ms()

    def is_used_up(self) -> bool:
        """Return whether other tasks must run now."""
        return self._used_ms + self._env.monotonic_ms() - self.started_ms >= self._limit_ms

    def restart(self) -> None:
        """Begin a new slice, after other tasks have run."""
        self._used_ms = 0.0
        self.started_ms = self._env.monotonic_ms()

    async def yield_now(self) -> None:
        """Let other tasks run, and begin a new slice."""
        await trio.lowlevel.checkpoint()
        self.restart()

    def start(self, job: Job[T]) -> T | Awaitable[T]:
        """Run a job until it ends, has to wait or uses up the slice; return its result, or an awaitable of it."""
        try:
            while True:
                awaited = next(job)
                if awaited is not None or self.is_used_up():
                    return self._continue(job, awaited)
        except StopIteration as end:
            result: T = end.value
            return result

    async def run(self, job: Job[T]) -> T:
        """Run a job to its end and return its result.

        A cancellation is raised in the job, at the place where it waits or is paused.
        """
        result = self.start(job)
        return await result if isinstance(result, CoroutineType) else cast("T", result)

    async def _continue(self, job: Job[T], awaited: Awaitable[Any] | None) -> T:
        """Run a job from a place on where it waits for ``awaited``, or is paused."""
        try:
            while True:
                try:
                    value = await self._wait(awaited)
                except BaseException as error:
                    awaited = job.throw(error)
                else:
                    awaited = job.send(value)
                while awaited is None and not self.is_used_up():
                    awaited = next(job)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _wait(self, awaited: Awaitable[Any] | None) -> Any:
        if awaited is None:
            return await self.yield_now()
        self.suspend()
        try:
            result = await awaited
        finally:
            self.resume()
        if self.is_used_up():  # also where the result was there already, which a cancellation must not lose
            with trio.CancelScope(shield=True):
                await self.yield_now()
        return result


async def run_in_background(env: Env, job: Job[T]) -> T:
    """Run a job that no connection runs, in the time slices of work in the background."""
    return await TimeSlice(env, BACKGROUND_SLICE_MS).run(job)
