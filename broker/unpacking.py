"""Who may unpack much of what others sent: a few at a time in a whole node, everybody else waits.

A batch of a few kilobytes may unpack to very much. Nothing of that is kept where its records are only looked at, but
between two pieces the codec keeps what it needs to go on: zstd a window of up to 128 MiB, snappy a whole block. A
hundred connections that are at it, each in its turns, would keep a hundred times that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import trio

from ottla.broker.turn import Waiting

AT_ONCE = 2
T = TypeVar("T")
Work = Generator[bool | None, None, T]
"""Work that is cut into steps, and says True once it keeps much, or will with the next step (`compression.StreamDecompressor`):
then it goes on when it is its turn. What unpacks little never waits."""


class _Place:
    """One of those who unpack much, or wait for it."""

    def __init__(self, room: trio.CapacityLimiter) -> None:
        self._room = room
        self._held = False

    async def wait(self) -> None:
        """Wait until it may."""
        await self._room.acquire_on_behalf_of(self)
        self._held = True

    def leave(self) -> None:
        """Let the next one; nothing where it never got so far."""
        if self._held:
            self._held = False
            self._room.release_on_behalf_of(self)


class Unpackings:
    """Those of a node."""

    def __init__(self) -> None:
        self._room = trio.CapacityLimiter(AT_ONCE)

    @property
    def busy(self) -> int:
        """How many unpack much."""
        return self._room.borrowed_tokens

    def steps(self, work: Work[T]) -> Waiting[T]:
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
                    place = _Place(self._room)
                    yield place
                else:
                    yield None
        finally:
            work.close()
            if place is not None:
                place.leave()

    async def through(self, work: Work[T]) -> T:
        """Go through all of it; others get the loop before each step."""
        steps = self.steps(work)
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
