"""Work that is many small steps, cut so that others get the loop in between."""

from __future__ import annotations

import trio

from ottla.world.env import Env

SLICE_MS = 2.0


class Slices:
    """Asked after each step, it lets the others run once the slice is used up."""

    __slots__ = ("_began_ms", "_env", "_limit_ms")

    def __init__(self, env: Env, limit_ms: float = SLICE_MS) -> None:
        self._env = env
        self._limit_ms = limit_ms
        self._began_ms = env.monotonic_ms()

    async def step(self) -> None:
        """One step is done."""
        if self._env.monotonic_ms() - self._began_ms >= self._limit_ms:
            await trio.lowlevel.checkpoint()
            self._began_ms = self._env.monotonic_ms()
