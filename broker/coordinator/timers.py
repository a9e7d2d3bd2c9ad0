"""Keyed one-shot timers of a node's coordinators and share partitions, in one heap."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any

import trio

from ottla.env.env import FOREVER_S, Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background


class _ArmedTimer:
    """Scheduled timer.

    ``heap_position_ms`` is its time in the heap, which may be earlier than its deadline ``due_ms``.
    """

    __slots__ = ("callback", "due_ms", "heap_position_ms", "key")

    def __init__(self, due: float, key: Hashable, fire: Callable[[], Any]) -> None:
        self.due_ms = due
        self.key: Hashable = key
        self.callback: Callable[[], Any] | None = fire
        self.heap_position_ms = due

    def disarm(self) -> None:
        """Cancel the timer. The heap entry stays until the timer would have expired, without key and callback."""
        self.key = self.callback = None


class Timers:
    """Timers by key, and the task that runs the callbacks of expired ones; scheduling a key again replaces its timer.

    Sessions restart their timer at every heartbeat and rarely expire, so a later deadline is only stored; the heap
    entry is moved when the earlier deadline has come.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._heap: list[tuple[float, int, _ArmedTimer]] = []
        self._armed: dict[Hashable, _ArmedTimer] = {}
        self._count = 0
        self._changed = trio.Event()

    def arm(self, key: Hashable, at_ms: int, fire: Callable[[], Any]) -> None:
        """Schedule ``fire`` for the wall clock time ``at_ms`` (ms since the epoch), replacing the timer with this key.

        The time left is measured on the monotonic clock, so that a change of the wall clock does not move the timer.
        `run` calls ``fire``; at once if ``at_ms`` has passed.
        """
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
        """Cancel the timer with a key; do nothing if there is none."""
        timer = self._armed.pop(key, None)
        if timer is not None:
            timer.disarm()
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._armed):
            # Most entries are cancelled: remove them.
            self._heap = [e for e in self._heap if e[2].callback is not None]
            heapq.heapify(self._heap)

    def _due(self) -> float | None:
        """Return the deadline of the next timer (monotonic clock, ms), or None if no timer is scheduled.

        Remove the heap entries of cancelled timers; move those of timers with a later deadline.
        """
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
        """Run the callbacks of expired timers until cancelled.

        If very many expire at once, other tasks run in between.
        """
        while True:
            await run_in_background(self._env, self._fire_due())
            due, now = self._due(), self._env.monotonic_ms()
            self._changed = trio.Event()
            with self._env.timeout(FOREVER_S if due is None else max(due - now, 0.0) / 1000):
                await self._changed.wait()

    def _fire_due(self) -> Job[None]:
        while (due := self._due()) is not None and due <= self._env.monotonic_ms():
            _, _, timer = heapq.heappop(self._heap)
            del self._armed[timer.key]
            assert timer.callback is not None
            timer.callback()
            yield None
