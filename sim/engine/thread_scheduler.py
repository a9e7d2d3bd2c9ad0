"""Scheduler of threads: exactly one runs, and the seed decides which one continues at each disk call.

A job runs in a real thread, which only runs while it holds the baton: it returns the baton at disk calls (before and
after, by the seed), and at its end. The stepping task waits for that. So a job can be overtaken by the event loop and
by other jobs at each disk call of either, and the same seed gives the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import trio

YIELD_SHARE = 0.4
"""Chance that a job gives the baton back at a disk call."""
PREEMPT_SHARE = 0.3
"""Chance that at a disk call of the loop a job moves on first."""
SLOW_CALLS = ("fsync", "fsync_dir")


class SimWorkerThread:
    """A thread of the machine's, lent to one job after the other."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.back = threading.Semaphore(0)
        self.job: SimThreadJob | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            assert self.job is not None
            self.job.run()
            self.job = None  # with its references, such as the disks of a simulation
            self.back.release()

    def resume_until_yield(self) -> None:
        """From outside: let the thread run until it gives the baton back."""
        self.go.release()
        self.back.acquire()

    def yield_control(self) -> None:
        """From the thread itself: give the baton back, and wait for it."""
        self.back.release()
        self.go.acquire()


_IDLE: list[SimWorkerThread] = []


class SimThreadJob:
    """Work on its way through a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.worker = _IDLE.pop() if _IDLE else SimWorkerThread()
        self.worker.job = self
        self.scope = trio.CancelScope(shield=True)
        """Around whoever waits for it: cancelled when the process is gone."""
        self.wake_at = 0.0
        """It waits for the disk until then."""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """In the thread: all of it."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001,RUF100 - handed on to whoever waits
            self.error = error
        self.done = True


class ThreadScheduler:
    """Threads of one process. `on_disk_call` is called at each disk call of any of them."""

    def __init__(self, rng: random.Random, now_s: Callable[[], float]) -> None:
        self._rng = rng
        self._now_s = now_s
        self.jobs: dict[SimThreadJob, None] = {}
        self.current: SimThreadJob | None = None
        """Whose turn it is; None: the loop's."""
        self.dead = False
        self.after_step: Callable[[], None] = lambda: None
        self.slow_s = 0.0
        """Longest time a sync takes on this disk."""

    def start(self, work: Callable[[], Any]) -> SimThreadJob:
        """Create a job, which has not run yet."""
        job = SimThreadJob(work)
        self.jobs[job] = None
        return job

    def step(self, job: SimThreadJob) -> None:
        """Let it move to where it gives the baton back."""
        before, self.current = self.current, job
        job.worker.resume_until_yield()
        self.current = before
        if job.done:
            self.jobs.pop(job, None)
            _IDLE.append(job.worker)
        self.after_step()

    def on_disk_call(self, what: str) -> None:
        """Handle a disk call, before or after it: other threads may run first."""
        if self.dead:
            return
        job = self.current
        if job is not None:
            if self._rng.random() < YIELD_SHARE:
                if self.slow_s and what in SLOW_CALLS:
                    job.wake_at = self._now_s() + self._rng.random() * self.slow_s
                job.worker.yield_control()
            return
        while self.jobs and self._rng.random() < PREEMPT_SHARE:
            ready = [x for x in self.jobs if x.wake_at <= self._now_s()]
            if not ready:
                return
            self.step(ready[int(self._rng.random() * len(ready))])
            if self.dead:
                return

    def pause(self, seconds: float) -> None:
        """From a job: let time pass."""
        job = self.current
        assert job is not None, "the loop must not wait"
        if not self.dead:
            job.wake_at = self._now_s() + seconds
            job.worker.yield_control()

    def end(self) -> None:
        """End: every job ends at its next disk call."""
        self.dead = True
        for job in list(self.jobs):
            job.scope.cancel()
            while not job.done:
                self.step(job)
