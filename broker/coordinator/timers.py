"""Keyed timers of a node's state machines, in one heap."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any

import trio

from ottla.env.env import FOREVER_S, Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background


class _ArmedTimer:
    """Set timer. ``heap_position_ms`` is its position in the heap, which may be earlier than its deadline."""

    __slots__ = ("callback", "due_ms", "heap_position_ms", "key")

    def __init__(self, due: float, key: Hashable, fire: Callable[[], Any]) -> None:
        self.due_ms = due
        self.key: Hashable = key
        self.callback: Callable[[], Any] | None = fire
        self.heap_position_ms = due

    def disarm(self) -> None:
        """Cancel the timer. Its heap entry stays until its time, without its key."""
        self.key = self.callback = None


class Timers:
    """Arm, cancel, and a task that fires what is due. A key is armed at most once: arming again moves it.

    Sessions move their timer at every heartbeat and almost never fire, so moving one to later only notes the new
    time; the heap learns of it when the old time has come.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._heap: list[tuple[float, int, _ArmedTimer]] = []
        self._armed: dict[Hashable, _ArmedTimer] = {}
        self._count = 0
        self._changed = trio.Event()

    def arm(self, key: Hashable, at_ms: int, fire: Callable[[], Any]) -> None:
        """Call ``fire`` once the wall clock has reached ``at_ms``. The delay is measured on the monotonic clock."""
        due = self._env.monotonic_ms() + max(at_ms - self._env.now_ms(), 0)
        timer = self._armed.get(key)
        if timer is not None:
            if due >= timer.heap_position_ms:
                timer.due_ms = due
                timer.callback = fire
                return
            timer.disarm()
        timer = self._armed[key] = _ArmedTimer(due, key, fire)
        self._push(timer)
        if self._heap[0][2] is timer:
            self._changed.set()

    def _push(self, timer: _ArmedTimer) -> None:
        self._count += 1
        timer.heap_position_ms = timer.due_ms
        heapq.heappush(self._heap, (timer.due_ms, self._count, timer))

    def cancel(self, key: Hashable) -> None:
        """Forget a timer; one that is not armed is no error."""
        timer = self._armed.pop(key, None)
        if timer is not None:
            timer.disarm()
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._armed):
            # Much was cancelled: do not keep every old position.
            self._heap = [e for e in self._heap if e[2].callback is not None]
            heapq.heapify(self._heap)

    def _due(self) -> float | None:
        """Return the deadline of the next timer; removes or moves outdated heap entries."""
        while self._heap:
            due, _, timer = self._heap[0]
            if timer.callback is not None:
                if timer.due_ms <= due:
                    return due
                heapq.heappop(self._heap)
                self._push(timer)
            else:
                heapq.heappop(self._heap)
        return None

    async def run(self) -> None:
        """Fire timers until cancelled. Very many may be due at once: other tasks run in between."""
        while True:
            await run_in_background(self._env, self._fire_due())
            due, now = self._due(), self._env.monotonic_ms()
            self._changed = trio.Event()
            with self._env.timeout(FOREVER_S if due is None else (due - now) / 1000):
                await self._changed.wait()

    def _fire_due(self) -> Job[None]:
        while (due := self._due()) is not None and due <= self._env.monotonic_ms():
            _, _, timer = heapq.heappop(self._heap)
            del self._armed[timer.key]
            assert timer.callback is not None
            timer.callback()
            yield None
