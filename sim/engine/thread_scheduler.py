"""Deterministic scheduler of threads: exactly one thread runs, and the seed selects the next one at each disk call.

A job runs in a real thread, but only while it has control: it yields control at disk calls (before and after, by the
seed) and at its end, for which the scheduling task waits. So the event loop or another job may run in between at each
disk call, and the same seed gives the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import trio

YIELD_SHARE = 0.4
"""Probability that a job yields control at a disk call."""
PREEMPT_SHARE = 0.3
"""Probability that a job makes a step before a disk call of the event loop."""
SLOW_CALLS = ("fsync", "fsync_dir")


class SimWorkerThread:
    """Real thread that executes one job after the other."""

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
        """Let the thread run until it yields control; called from other threads."""
        self.go.release()
        self.back.acquire()

    def yield_control(self) -> None:
        """Yield control and wait for it; called in the thread itself."""
        self.back.release()
        self.go.acquire()


_IDLE: list[SimWorkerThread] = []


class SimThreadJob:
    """Function that is executed in a thread, step by step."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.worker = _IDLE.pop() if _IDLE else SimWorkerThread()
        self.worker.job = self
        self.scope = trio.CancelScope(shield=True)
        """Cancel scope of the task that waits for the job, cancelled when the process ends."""
        self.wake_at = 0.0
        """Time until which the job waits for the disk."""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Execute the job; called in its thread."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001,RUF100 - handed on to whoever waits
            self.error = error
        self.done = True


class ThreadScheduler:
    """Threads of one process; `on_disk_call` is called at each disk call of the process."""

    def __init__(self, rng: random.Random, now_s: Callable[[], float]) -> None:
        self._rng = rng
        self._now_s = now_s
        self.jobs: dict[SimThreadJob, None] = {}
        self.current: SimThreadJob | None = None
        """Job that has control; None if the event loop has it."""
        self.dead = False
        self.after_step: Callable[[], None] = lambda: None
        self.slow_s = 0.0
        """Maximum duration of an fsync in seconds."""

    def start(self, work: Callable[[], Any]) -> SimThreadJob:
        """Create and return a job, which runs when `step` is called."""
        job = SimThreadJob(work)
        self.jobs[job] = None
        return job

    def step(self, job: SimThreadJob) -> None:
        """Let a job run until it yields control or ends."""
        before, self.current = self.current, job
        job.worker.resume_until_yield()
        self.current = before
        if job.done:
            self.jobs.pop(job, None)
            _IDLE.append(job.worker)
        self.after_step()

    def on_disk_call(self, call: str) -> None:
        """Let other threads run, at random, before a disk call named ``call``, or after the change that it made.

        A thread yields control, at an fsync for up to `slow_s`; the event loop makes steps of threads.
        """
        if self.dead:
            return
        job = self.current
        if job is not None:
            if self._rng.random() < YIELD_SHARE:
                if self.slow_s and call in SLOW_CALLS:
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
        """Yield control for a number of simulated seconds; called in the thread of a job."""
        job = self.current
        assert job is not None, "the loop must not wait"
        if not self.dead:
            job.wake_at = self._now_s() + seconds
            job.worker.yield_control()

    def end(self) -> None:
        """Mark the process as ended, and run every job to its end: its next disk call fails."""
        self.dead = True
        for job in list(self.jobs):
            job.scope.cancel()
            while not job.done:
                self.step(job)
