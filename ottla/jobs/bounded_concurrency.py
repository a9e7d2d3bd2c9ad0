"""Concurrent asynchronous calls with a limit. CPU-bound work on the event loop is a job (`ottla.jobs.job`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")
MAX_CONCURRENT = 500
"""Maximum number of concurrent calls of one `for_each_concurrently`."""


async def for_each_concurrently(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work`` for each item, at most `MAX_CONCURRENT` at a time; return when all have ended.

    An exception cancels the other calls and is raised (in an ExceptionGroup). A trio nursery alone has no limit.
    """
    free = trio.Semaphore(MAX_CONCURRENT)

    async def call(item: T) -> None:
        try:
            await work(item)
        finally:
            free.release()

    async with trio.open_nursery() as nursery:
        for item in items:
            await free.acquire()  # a checkpoint, even if it does not wait
            nursery.start_soon(call, item)
