"""Simulated `Env`: virtual time, randomness of the seed, a network in memory, deterministic threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.env.disk import Disk
from ottla.env.env import FOREVER_S, Deadline, Network, ProcessStats, ThreadPool, WorkerContext
from ottla.env.kerberos import GssAcceptorCredentials, GssInitiator, InvalidKeytab, KerberosIdentity, Keytab
from sim.engine.network import SimHostNetwork

if TYPE_CHECKING:
    from ottla.broker.storage.tiered.remote_storage import RemoteStorage
    from sim.engine.processes import SimProcess

T = TypeVar("T")
A = TypeVar("A")
POOL_SIZES = {
    ThreadPool.RAFT: 2,
    ThreadPool.SYNC: 8,
    ThreadPool.FILES: 4,
    ThreadPool.REMOVAL: 1,
    ThreadPool.AUTHENTICATION: 2,
    ThreadPool.KERBEROS: 2,
    ThreadPool.REMOTE_STORAGE: 1000,
}


class SimDeadline:
    """Context manager that cancels its block at a deadline, or, if the process is paused then, when it is resumed."""

    def __init__(self, env: SimEnv, deadline: float) -> None:
        self._env = env
        self._deadline = deadline
        self._scope = trio.CancelScope(deadline=deadline)

    @property
    def cancelled_caught(self) -> bool:
        """True if the deadline passed before the end of the block, which was cancelled."""
        return self._scope.cancelled_caught

    def suspend(self) -> None:
        """Remove the deadline until `resume`."""
        self._scope.deadline = FOREVER_S

    def resume(self) -> None:
        """Restore the deadline, which may be in the past."""
        self._scope.deadline = self._deadline

    def __enter__(self) -> SimDeadline:
        self._env.deadlines[self] = None
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._env.deadlines.pop(self, None)
        return self._scope.__exit__(kind, error, trace)


class SimEnv:
    """Environment of one simulated process."""

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._simulation = process.simulation
        self._clock = process.host.clock
        self.disk: Disk = process.session
        self.net: Network = SimHostNetwork(self._simulation.network, process)
        self.deadlines: dict[SimDeadline, None] = {}
        self.open_remote_storage: Callable[[], RemoteStorage] | None = None
        """Function that opens the remote store of log segments; None: the store of the node's settings."""
        self._limits = {lane: trio.CapacityLimiter(count) for lane, count in POOL_SIZES.items()}

    def now_ms(self) -> int:
        """Return the host's wall clock in milliseconds since 1970."""
        return self._clock.wall_ms()

    def monotonic_s(self) -> float:
        """Return the host's monotonic clock in seconds."""
        return self._clock.monotonic_s()

    def monotonic_ms(self) -> float:
        """Return the host's monotonic clock in milliseconds."""
        return self._clock.monotonic_s() * 1000

    def uuid(self) -> bytes:
        """Return a random id of 16 bytes, determined by the seed; it is no UUID of version 4."""
        return b"\x01" + self._simulation.rng.randbytes(15)

    def random(self) -> float:
        """Return a random number from 0 to below 1, determined by the seed."""
        return self._simulation.rng.random()

    def process_stats(self) -> ProcessStats:
        """Return empty process statistics."""
        return ProcessStats()

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds of the host's clock, in virtual time."""
        await trio.sleep(seconds / self._clock.rate)
        await self._process.wait_if_paused()

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Return a context manager that cancels its block after a number of seconds of the host's clock."""
        return SimDeadline(self, self._simulation.now_s() + seconds / self._clock.rate)

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a simulated thread and returns its result.

        The seed determines the order of its disk calls and the event loop; ``lane`` limits the concurrent threads.
        """

        async def later() -> T:
            async with self._limits[lane]:
                result: T = await self._process.in_thread(work)
                return result

        return later()

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Raise InvalidKeytab: there is no Kerberos in a simulation.

        Raises:
            InvalidKeytab: always.
        """
        raise InvalidKeytab("there is no Kerberos in a simulation")

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Raise InvalidKeytab: there is no Kerberos in a simulation.

        Raises:
            InvalidKeytab: always.
        """
        raise InvalidKeytab("there is no Kerberos in a simulation")

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a simulated child process on the same host (`in_child`)."""
        return self._process.in_child(work, argument)

    def suspend_deadlines(self) -> None:
        """Suspend all deadlines until `resume_deadlines`; called when the process is paused."""
        for deadline in self.deadlines:
            deadline.suspend()

    def resume_deadlines(self) -> None:
        """Resume all deadlines; those that passed meanwhile cancel their blocks at once."""
        for deadline in self.deadlines:
            deadline.resume()
