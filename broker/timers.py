"""One heap of keyed timers for the machines of a node."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any

import trio

from ottla.log.env import Env


class Timers:
    """Arm, cancel, and a task that fires what is due. A key is armed at most once: arming again moves it."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._heap: list[tuple[float, int, Hashable]] = []
        self._armed: dict[Hashable, tuple[int, Callable[[], Any]]] = {}
        self._count = 0
        self._changed = trio.Event()

    def arm(self, key: Hashable, at_ms: int, fire: Callable[[], Any]) -> None:
        """Call ``fire`` once the wall clock has reached ``at_ms``. The delay is measured on the monotonic clock."""
        self._count += 1
        due = self._env.monotonic_ms() + max(at_ms - self._env.now_ms(), 0)
        self._armed[key] = (self._count, fire)
        heapq.heappush(self._heap, (due, self._count, key))
        if self._heap[0][1] == self._count:
            self._changed.set()

    def cancel(self, key: Hashable) -> None:
        """Forget a timer; one that is not armed is no error."""
        self._armed.pop(key, None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._armed):
            # Heartbeats move their timer far more often than one fires: do not keep every old position.
            self._heap = [e for e in self._heap if self._armed.get(e[2], (0,))[0] == e[1]]
            heapq.heapify(self._heap)

    def _due(self) -> float | None:
        """When the next armed timer is due; outdated heap entries are dropped on the way."""
        while self._heap:
            due, count, key = self._heap[0]
            if self._armed.get(key, (0, None))[0] == count:
                return due
            heapq.heappop(self._heap)
        return None

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            due = self._due()
            now = self._env.monotonic_ms()
            if due is not None and due <= now:
                _, _, key = heapq.heappop(self._heap)
                self._armed.pop(key)[1]()
                continue
            self._changed = trio.Event()
            with trio.move_on_after(float("inf") if due is None else (due - now) / 1000):
                await self._changed.wait()
