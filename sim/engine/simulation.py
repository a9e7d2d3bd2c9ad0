"""Core of a simulation: seed, clock and trace; hosts, their processes and the network.

The same seed gives the same trace in any process on this machine that runs with ``PYTHONHASHSEED=0``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from sim.checkers import response_checks
from sim.checkers.coordinator_failures import end_on_coordinator_failure
from sim.checkers.delivery_checker import DeliveryChecker
from sim.checkers.history import OperationHistory
from sim.engine.hosts import SimHost
from sim.engine.network import SimNetwork
from sim.engine.processes import SimProcess
from sim.engine.trio_patches import make_deterministic


class EventTrace:
    """Trace of the events of a run; each is one row of text, enters a digest, and is passed to `listen` if set."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.listen: Callable[[str], None] | None = None

    def add(self, line: str) -> None:
        """Add the text of an event to the digest, and pass it to the listener."""
        self._digest.update(line.encode() + b"\n")
        if self.listen is not None:
            self.listen(line)

    def digest(self) -> str:
        """Return 16 hexadecimal digits, equal for equal traces."""
        return self._digest.hexdigest()[:16]


class Simulation:
    """Simulated run: its seed, virtual clock, trace, hosts, network, recorded operations and violations.

    From its creation on, all nodes of this Python process have their responses checked (`response_checks`), and end if
    a coordinator fails.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = trio.testing.MockClock(autojump_threshold=0)
        self.trace = EventTrace()
        self.hosts: dict[str, SimHost] = {}
        self.network = SimNetwork(self.rng, self.host, self.now_s)
        self.ledger = DeliveryChecker()
        self.history = OperationHistory()
        end_on_coordinator_failure()
        response_checks.install()
        self.draining = False
        """True once clients complete their pending operations and start no new ones."""
        self._nursery: trio.Nursery | None = None

    def now_s(self) -> float:
        """Return the simulated time in seconds since the start of the run; threads may call this method."""
        return self.clock.current_time()

    def trace_event(self, text: str) -> None:
        """Add an event to the trace, preceded by the simulated time in seconds."""
        self.trace.add(f"{self.now_s():.6f} {text}")

    def host(self, name: str) -> SimHost:
        """Return the host with a name, created at its first use."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = SimHost(name, self.rng, self.now_s)
        return found

    def process(self, host: str = "node") -> SimProcess:
        """Create and return a process on a host, which is created at its first use; the process runs no code yet."""
        return SimProcess(self, self.host(host))

    def start_soon(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Start a task of the simulation that is not bound to a simulated process."""
        assert self._nursery is not None, "the simulation does not run"
        self._nursery.start_soon(work)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run ``main`` in an event loop of its own until it ends, then kill the processes on all hosts.

        trio is made deterministic by patches that stay in this Python process.
        """
        make_deterministic(self.seed)

        async def everything() -> None:
            async with trio.open_nursery() as self._nursery:
                try:
                    await main()
                finally:
                    for host in self.hosts.values():
                        for process in list(host.processes):
                            process.kill()
                    self._nursery.cancel_scope.cancel()

        trio.run(everything, clock=self.clock)
