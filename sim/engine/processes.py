"""Simulated processes: each has a session of its host's disk, and can be killed or paused."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.env.env import ChildDied, WorkerContext
from ottla.env.memory_disk import ProcessKilled
from sim.engine.network import SimStream
from sim.engine.sim_env import SimEnv
from sim.engine.thread_scheduler import SimThreadJob, ThreadScheduler

if TYPE_CHECKING:
    from sim.engine.hosts import SimHost
    from sim.engine.simulation import Simulation

STEP_S = 0.002
"""Maximum time between two steps of a job in a thread."""
ORPHAN_LIFETIME_S = 0.2
"""Maximum lifetime of a child process after its parent has ended."""


class SimProcess:
    """Process on a host, from its start to its end."""

    def __init__(self, simulation: Simulation, host: SimHost, parent: SimProcess | None = None) -> None:
        self.simulation = simulation
        self.host = host
        self.session = host.disk.session()
        self.threads = ThreadScheduler(simulation.rng, simulation.now_s)
        self.threads.slow_s = host.slow_s
        self.session.on_call = self.threads.on_disk_call
        self.session.died = self._session_died
        self.threads.after_step = self._after_step
        self.env = SimEnv(self)
        self.scope: trio.CancelScope | None = None
        """Cancel scope of all tasks of the process, cancelled at its end."""
        self.parent = parent
        self.children: dict[SimProcess, None] = {}
        self.paused = False
        self._resumed = trio.Event()
        self._cleaned_up = False
        host.processes[self] = None

    @property
    def dead(self) -> bool:
        """True after the end of the process."""
        return self.session.dead

    # ------------------------------------------------------------------ start and end

    async def run_until_end(self, main: Callable[[], Awaitable[Any]]) -> BaseException | None:
        """Run ``main`` until it ends or the process is killed; then kill the process.

        Returns:
            The exception that ended ``main``, ProcessKilled for a killed process, or None. Nothing is raised.
        """
        ended: BaseException | None = None
        try:
            with trio.CancelScope() as self.scope:
                await main()
        except BaseException as error:  # noqa: BLE001,RUF100 - the caller sorts it out
            ended = error
        if ended is None and self.dead:
            ended = ProcessKilled()
        self.kill()
        return ended

    def kill(self) -> None:
        """End the process as by SIGKILL: no further step; the kernel closes its files and connections."""
        self.session.kill()

    def vanish(self) -> None:
        """End the process without closing its connections, as when its host loses power."""
        self._cleaned_up = True
        self.session.kill()
        self._clean_up(SimStream.vanish)

    def _session_died(self) -> None:
        if self.threads.current is None and not self._cleaned_up:
            self._cleaned_up = True
            self._clean_up(SimStream.close_by_kernel)

    def _after_step(self) -> None:
        """Clean up if the process was ended during the last step of a thread."""
        if self.dead:
            self._session_died()

    def _clean_up(self, how: Callable[[SimStream], None]) -> None:
        self.threads.end()
        self.simulation.network.close_all_of(self, how)
        self.host.processes.pop(self, None)
        if self.parent is not None:
            self.parent.children.pop(self, None)
        self.resume()
        if self.scope is not None:
            self.scope.cancel()

    # ------------------------------------------------------------------ pause

    def pause(self) -> None:
        """Pause the process as by SIGSTOP: it makes no step while time passes; its kernel still receives bytes."""
        if not self.dead and not self.paused:
            self.paused = True
            self.env.suspend_deadlines()

    def resume(self) -> None:
        """Continue the process as by SIGCONT; without effect if it is not paused."""
        if self.paused:
            self.paused = False
            self._resumed.set()
            self._resumed = trio.Event()
            self.env.resume_deadlines()

    async def wait_if_paused(self) -> None:
        """Wait while the process is paused; called after every other wait."""
        while self.paused:
            await self._resumed.wait()

    # ------------------------------------------------------------------ threads and child processes

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in a simulated thread; return its result or raise its exception.

        Cancellation waits for the end of ``work``.
        """
        job = self.threads.start(work)
        await self._drive(job)
        if job.error is not None:
            raise job.error
        return job.result

    async def _drive(self, job: SimThreadJob) -> None:
        with job.scope:
            while not job.done:
                now = self.simulation.now_s()
                await trio.sleep(max(self.simulation.rng.random() * STEP_S, job.wake_at - now))
                await self.wait_if_paused()
                if not job.done and job.wake_at <= self.simulation.now_s():
                    self.threads.step(job)
        if not job.done:  # not started, and the process has ended
            self.threads.step(job)

    async def in_child(self, work: Callable[[WorkerContext, Any], Any], argument: Any) -> Any:
        """Run ``work(context, argument)`` in a simulated child process; return its result or raise its exception.

        Both are copied by pickle, and so is the result.

        Cancellation kills the child; one whose parent has ended runs for at most `ORPHAN_LIFETIME_S`.

        Raises:
            ChildDied: the child was killed.
        """
        child = SimProcess(self.simulation, self.host, self)
        child.session.fault = self.session.fault
        self.children[child] = None
        sent = pickle.dumps((work, argument))
        over = trio.Event()
        outcome: list[bytes] = []

        def main() -> bytes:
            job, given = pickle.loads(sent)
            try:
                context = WorkerContext(child.session, child.env.monotonic_s, child.threads.pause)
                return pickle.dumps((True, job(context, given)))
            except Exception as error:  # noqa: BLE001,RUF100 - the parent decides what it means
                return pickle.dumps((False, error))

        async def run() -> None:
            outcome.append(await child.in_thread(main))

        async def run_child() -> None:
            await child.run_until_end(run)
            over.set()

        self.simulation.start_soon(run_child)
        try:
            await over.wait()
        except trio.Cancelled:
            if self.dead:
                self.simulation.start_soon(partial(_kill_orphan, child))
            else:
                child.kill()
            raise
        await self.wait_if_paused()
        if not outcome:
            raise ChildDied("killed")
        good, result = pickle.loads(outcome[0])
        if not good:
            raise result
        return result


async def _kill_orphan(child: SimProcess) -> None:
    await trio.sleep(child.simulation.rng.random() * ORPHAN_LIFETIME_S)
    child.kill()
