"""Long work done piece by piece: the loop goes round between two pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

import trio

from ottla.jobs.steps import YIELD_EVERY

T = TypeVar("T")


async def iterate_yielding(items: Iterable[T]) -> AsyncIterator[T]:
    """One after the other; the loop goes round now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % YIELD_EVERY == 0:
            await trio.lowlevel.checkpoint()


async def run_yielding(steps: Generator[None, None, T]) -> T:
    """All steps, with a turn of the loop after each; gives what they give."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await trio.lowlevel.checkpoint()
