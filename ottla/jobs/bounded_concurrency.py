"""Concurrent waits, limited in number and started one by one, so that requests of others are served in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")
MAX_CONCURRENT = 500
"""So many at most are under way."""


async def for_each_concurrently(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Work on all of them; what one raises ends the others."""
    room = trio.Semaphore(MAX_CONCURRENT)

    async def one(item: T) -> None:
        try:
            await work(item)
        finally:
            room.release()

    async with trio.open_nursery() as nursery:
        for item in items:
            await room.acquire()  # lets the loop go round, also where there is room
            nursery.start_soon(one, item)
