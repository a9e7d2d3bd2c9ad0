"""Cooperative jobs: long computations as generators, which `ottla.jobs.time_slice` runs on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")
Job = Generator[Awaitable[Any] | None, Any, T]
"""Long computation that returns a ``T``. It yields None where other tasks may run, or an awaitable that it waits for.

The awaitable's result is sent back into the job, and its exception is raised at the yield. The time slice counts only
the job's own time: long work in a coroutine that it awaits must be another job.
"""


def run_to_end(job: Job[T]) -> T:
    """Run a job to its end without yielding to other tasks and return its result.

    Raises:
        RuntimeError: the job yields an awaitable.
    """
    try:
        while True:
            if next(job) is not None:
                raise RuntimeError(f"a job waits where it must not: {job}")
    except StopIteration as end:
        result: T = end.value
        return result


def as_job(result: T | Job[T]) -> Job[T]:
    """Return a job that returns ``result``, or the result of the job ``result``."""
    return (yield from result) if isinstance(result, GeneratorType) else result  # type: ignore[return-value]
