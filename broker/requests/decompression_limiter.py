"""Who may unpack much of what others sent: a few at a time in a whole node, everybody else waits.

A batch of a few kilobytes may unpack to very much. Nothing of that is kept where its records are only looked at, but
between two pieces the codec keeps what it needs to go on: zstd a window of up to 128 MiB, snappy a whole block. A
hundred connections that are at it, each in its turns, would keep a hundred times that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import trio

from ottla.jobs.time_slice import WaitingJob

MAX_CONCURRENT_DECOMPRESSIONS = 2
T = TypeVar("T")
DecompressionJob = Generator[bool | None, None, T]
"""Work that is cut into steps, and says True once it keeps much, or will with the next step
(`compression.StreamDecompressor`): then it goes on when it is its turn. What unpacks little never waits."""


class _DecompressionSlot:
    """One of those who unpack much, or wait for it."""

    def __init__(self, room: trio.CapacityLimiter) -> None:
        self._limiter = room
        self._held = False

    async def wait(self) -> None:
        """Wait until it may."""
        await self._limiter.acquire_on_behalf_of(self)
        self._held = True

    def release(self) -> None:
        """Let the next one; nothing where it never got so far."""
        if self._held:
            self._held = False
            self._limiter.release_on_behalf_of(self)


class DecompressionLimiter:
    """Those of a node."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(MAX_CONCURRENT_DECOMPRESSIONS)

    @property
    def active_count(self) -> int:
        """How many unpack much."""
        return self._limiter.borrowed_tokens

    def as_job(self, work: DecompressionJob[T]) -> WaitingJob[T]:
        """The same work as steps of a turn; whoever ends early closes them."""
        place = None
        try:
            while True:
                try:
                    heavy = next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if heavy and place is None:
                    place = _DecompressionSlot(self._limiter)
                    yield place
                else:
                    yield None
        finally:
            work.close()
            if place is not None:
                place.release()

    async def run(self, work: DecompressionJob[T]) -> T:
        """Go through all of it; others get the loop before each step."""
        steps = self.as_job(work)
        try:
            while True:
                await trio.lowlevel.checkpoint()
                try:
                    place = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if place is not None:
                    await place.wait()
        finally:
            steps.close()
