"""Runner of cooperative jobs on the event loop, which yields to other tasks when a time slice is used up."""

from __future__ import annotations

from collections.abc import Awaitable
from types import CoroutineType
from typing import Any, TypeVar, cast

import trio

from ottla.env.env import Env
from ottla.jobs.job import Job

SLICE_MS = 10.0
"""Time slice in ms of the requests of a connection."""
BACKGROUND_SLICE_MS = 2.0
"""Time slice in ms of background jobs: shorter, since requests wait for them."""

T = TypeVar("T")


class TimeSlice:
    """Runner of jobs that yields to other tasks whenever ``limit_ms`` of run time are used up.

    Consecutive jobs of a runner share the time slice. Time spent waiting does not count: that of jobs for awaitables is
    left out, and callers enclose other waits in `suspend` and `resume`.
    """

    __slots__ = ("_env", "_limit_ms", "_used_ms", "started_ms")

    def __init__(self, env: Env, limit_ms: float = SLICE_MS) -> None:
        self._env = env
        self._limit_ms = limit_ms
        self.started_ms = env.monotonic_ms()
        self._used_ms = 0.0

    def suspend(self) -> float:
        """Stop measuring run time before a wait; return the time of the monotonic clock in ms."""
        now = self._env.monotonic_ms()
        self._used_ms += now - self.started_ms
        self.started_ms = now
        return now

    def resume(self) -> None:
        """Continue to measure run time after a wait."""
        self.started_ms = self._env.monotonic_ms()

    def is_used_up(self) -> bool:
        """Return True if the run time since `restart` has reached the limit, so that other tasks must run."""
        return self._used_ms + self._env.monotonic_ms() - self.started_ms >= self._limit_ms

    def restart(self) -> None:
        """Begin a new time slice, after other tasks have run."""
        self._used_ms = 0.0
        self.started_ms = self._env.monotonic_ms()

    async def yield_now(self) -> None:
        """Yield to other tasks, then begin a new time slice."""
        await trio.lowlevel.checkpoint()
        self.restart()

    def start(self, job: Job[T]) -> T | Awaitable[T]:
        """Run a job until it ends, waits or uses up the time slice; return its result, or an awaitable of it.

        The awaitable continues the job; without an await the rest of the job does not run.
        """
        try:
            while True:
                awaited = next(job)
                if awaited is not None or self.is_used_up():
                    return self._continue(job, awaited)
        except StopIteration as end:
            result: T = end.value
            return result

    async def run(self, job: Job[T]) -> T:
        """Run a job to its end and return its result, yielding to other tasks when the time slice is used up.

        Exceptions of the job are raised. A cancellation is raised in the job at its current yield.
        """
        result = self.start(job)
        return await result if isinstance(result, CoroutineType) else cast("T", result)

    async def _continue(self, job: Job[T], awaited: Awaitable[Any] | None) -> T:
        """Continue a job that has yielded ``awaited`` (None: yield to other tasks); return its result."""
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
        if self.is_used_up():  # shielded: a cancellation must not lose the result
            with trio.CancelScope(shield=True):
                await self.yield_now()
        return result


async def run_in_background(env: Env, job: Job[T]) -> T:
    """Run a job of a background task in time slices of `BACKGROUND_SLICE_MS`; return its result."""
    return await TimeSlice(env, BACKGROUND_SLICE_MS).run(job)
