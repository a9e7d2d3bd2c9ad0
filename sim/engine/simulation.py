"""Core of a simulation: one seed, one clock, one trace; hosts, their processes and the network.

The same seed gives the same trace, in any process of the machine's that runs under ``PYTHONHASHSEED=0``.
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
    """Trace of events, a line each: as a digest, and as text for a listener."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.listen: Callable[[str], None] | None = None

    def add(self, line: str) -> None:
        """Add an event."""
        self._digest.update(line.encode() + b"\n")
        if self.listen is not None:
            self.listen(line)

    def digest(self) -> str:
        """16 hexadecimal digits: equal for equal runs."""
        return self._digest.hexdigest()[:16]


class Simulation:
    """Running simulation."""

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
        """Clients finish what they have begun, and begin nothing."""
        self._nursery: trio.Nursery | None = None

    def now_s(self) -> float:
        """Return the simulated time; may be called by threads."""
        return self.clock.current_time()

    def trace_event(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.add(f"{self.now_s():.6f} {text}")

    def host(self, name: str) -> SimHost:
        """Return the host of that name, created on first use."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = SimHost(name, self.rng, self.now_s)
        return found

    def process(self, host: str = "node") -> SimProcess:
        """Return a fresh process on a host."""
        return SimProcess(self, self.host(host))

    def start_soon(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Start a task of the simulation, which outlives its process."""
        assert self._nursery is not None, "the simulation does not run"
        self._nursery.start_soon(work)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run until ``main`` ends; remaining processes are killed then."""
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
