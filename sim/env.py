"""The simulated world as an `Env`: virtual time, one seed, a disk that forgets, a network in memory, no threads."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import trio

from ottla.world.disk import Disk
from ottla.world.env import Deadline, Ground, Lane, Net

T = TypeVar("T")
A = TypeVar("A")
EPOCH_MS = 1_800_000_000_000
SLOW_WORK_S = 0.004


class SimEnv:
    """One process's view."""

    def __init__(self, rng: random.Random, disk: Disk, net: Net) -> None:
        self._rng = rng
        self.disk = disk
        self.net = net

    def now_ms(self) -> int:
        """Virtual wall clock."""
        return EPOCH_MS + int(trio.current_time() * 1000)

    def monotonic_ms(self) -> float:
        """Virtual clock."""
        return trio.current_time() * 1000

    def uuid(self) -> bytes:
        """From the seed."""
        return b"\x01" + self._rng.randbytes(15)

    def random(self) -> float:
        """From the seed."""
        return self._rng.random()

    async def sleep(self, seconds: float) -> None:
        """Virtual time."""
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Virtual time."""
        return trio.move_on_after(seconds)

    def in_thread(self, work: Callable[[], T], lane: Lane = Lane.FILES) -> Awaitable[T]:
        """Threads have no fixed order: slow work runs here, after a while."""

        async def later() -> T:
            await trio.sleep(self._rng.random() * SLOW_WORK_S)
            return work()

        return later()

    def in_process(self, work: Callable[[Ground, A], T], argument: A) -> Awaitable[T]:
        """In this one, on this process's own disk, after a while."""
        return self.in_thread(lambda: work(Ground(self.disk, trio.current_time, lambda _: None), argument))
