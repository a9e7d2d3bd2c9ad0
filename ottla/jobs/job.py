"""Cooperative jobs: long work as generators. `ottla.jobs.time_slice` runs them on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")
Job = Generator[Awaitable[Any] | None, Any, T]
"""Long work that returns a ``T``. It yields None where it may be paused, or an awaitable that it waits for: the result
is sent back to it, and an exception of the awaitable is raised where it was yielded. The time slice counts the time of
the job only: long work in a coroutine that it waits for is a job of its own."""


def run_to_end(job: Job[T]) -> T:
    """Run a job without pauses and return its result.

    Raises:
        RuntimeError: the job waits for an event.
    """
    try:
        while True:
            if next(job) is not None:
                raise RuntimeError(f"a job waits where it must not: {job}")
    except StopIteration as end:
        result: T = end.value
        return result


def as_job(result: T | Job[T]) -> Job[T]:
    """Make a job of a result, or of the job that computes it."""
    return (yield from result) if isinstance(result, GeneratorType) else result  # type: ignore[return-value]
