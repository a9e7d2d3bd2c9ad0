"""Life cycle of a simulated node: starts, faults and stops, classification of its end, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import AllLogDirsFailed, Node
from ottla.env.memory_disk import ProcessKilled
from sim.checkers.response_checks import InvalidResponse
from sim.faults.fault_plan import BROKEN_DISK, CALLS_BEFORE_A_DEATH, FaultInjector, FaultPlan, break_disk
from sim.workload.clients import NO_SETTINGS, NODE, PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sim.engine.processes import SimProcess
    from sim.engine.simulation import Simulation

STOP_TIMEOUT_S = 200.0
EARLY_STOP_S = 0.1
"""Delay of a stop, below which the stop is requested during the start."""
DISK_CALLS_DURING_STOP = 80
WAIT_S = 0.5
"""Interval in seconds for checking whether a node may be stopped uncleanly."""
STOP_ATTEMPTS = 20
"""Number of refused unclean stops after which the node stops cleanly instead."""


class StopPolicy:
    """Policy of stops: which nodes may stop uncleanly, and which data they lose. This one allows everything."""

    def __init__(self, simulation: Simulation, fault_plan: FaultPlan) -> None:
        self.simulation = simulation
        self._fault_plan = fault_plan

    def may_stop_uncleanly(self, host: str) -> bool:
        """Return True if a node may stop uncleanly now, by a kill or a failing disk; always True here."""
        return True

    def power_cut(self, host: str, node: Node) -> bool:
        """Return True if a node may lose unsynced data now; always True here.

        Unless the plan is synced, the recovery points are recorded, above which records may be lost.
        """
        if not self._fault_plan.synced:  # synced nodes lose no data
            self.simulation.ledger.record_power_cut(
                {(x.topic, x.partition): x.recovery_point for x in node.log_dirs.logs()}
            )
        return True

    def replaced_dirs(self, host: str) -> list[str]:
        """Return the log directories of a node to replace by empty ones after a power cut; none here."""
        return []


def flatten_exceptions(error: BaseException | None) -> list[BaseException]:
    """Return an error as a list, or all errors in an exception group and the groups in it; None is an empty list."""
    if isinstance(error, BaseExceptionGroup):
        return [x for y in error.exceptions for x in flatten_exceptions(y)]
    return [] if error is None else [error]


class NodeLifecycle:
    """Repeated runs of one node; ``settings`` are added to those of the fault plan."""

    def __init__(
        self,
        simulation: Simulation,
        fault_plan: FaultPlan,
        node_id: int = 1,
        host: str = NODE,
        settings: Mapping[str, str] = NO_SETTINGS,
        guard: StopPolicy | None = None,
    ) -> None:
        self._simulation = simulation
        self._fault_plan = fault_plan
        self._node_id = node_id
        self._host = host
        self._settings = {**fault_plan.settings, **settings}
        self._guard = guard or StopPolicy(simulation, fault_plan)
        self._log_prefix = "" if host == NODE else f"{host}: "
        self._broken = False
        self.node: Node | None = None
        """Node of the current run."""
        self.process: SimProcess | None = None
        """Process of the current run."""

    async def run_until(self, stable_at_s: float, last_begins: Callable[[], None]) -> None:
        """Run the node repeatedly with random ends; the last run starts after ``stable_at_s`` and has no planned end.

        ``stable_at_s`` is simulated time. ``last_begins`` is called before the last run; its end is a violation.
        """
        simulation = self._simulation
        while simulation.now_s() < stable_at_s:
            await self.run_once(simulation.rng.choice(self._fault_plan.stop_kinds))
            await trio.sleep(simulation.rng.random() * self._fault_plan.max_downtime_s)
        last_begins()
        await self.run_once(None)
        simulation.ledger.report_violation("no-start", "the last life ended by itself")

    async def run_until_killed(self) -> None:
        """Run the node repeatedly without planned ends until cancelled; a killed node is started again."""
        while True:
            await self.run_once(None)
            await trio.sleep(self._simulation.rng.random() * self._fault_plan.max_downtime_s)

    def create_node(self, process: SimProcess) -> Node:
        """Create the node of a new run, with the settings of plan and life cycle; it does not run yet."""
        return Node(process.env, NodeConfig(self._settings, self._fault_plan.dirs, self._node_id, self._host, PORT))

    async def run_once(self, ending: str | None) -> None:
        """Power the host up and run the node once, until its planned end or another one.

        ``ending`` is a kind of `STOP_KINDS`, None for no planned end. An unexpected end is reported as a violation.
        """
        simulation, rng = self._simulation, self._simulation.rng
        host = simulation.host(self._host)
        host.power_up()
        process = simulation.process(self._host)
        disk = host.disk
        self.node = node = self.create_node(process)
        self.process = process
        simulation.trace_event(f"{self._log_prefix}start, fate {ending}, {disk.calls} calls")
        self._broken = False
        if ending in ("kill", "power") and rng.random() < 0.7 and self._guard.may_stop_uncleanly(self._host):
            process.session.kill_at = disk.calls + int(
                rng.random() * CALLS_BEFORE_A_DEATH * self._fault_plan.disk_call_factor
            )
        if ending in BROKEN_DISK and self._guard.may_stop_uncleanly(self._host):
            break_disk(process, ending, self._disk_broke, self._fault_plan.disk_call_factor)
        stop = trio.Event()

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                if ending is not None:
                    nursery.start_soon(self._stop_later, process, node, ending, stop)
                await node.run(None, stop)
                nursery.cancel_scope.cancel()

        error = await process.run_until_end(main)
        self.node = self.process = None
        ended = self._classify_end(error, stopped=stop.is_set())
        if ending == "power" and ended == "killed" and host.up:
            self._power_cut(node)
        if ending is not None:
            self._fault_plan.counts[ending if ended != "stopped" else "clean"] += 1
        simulation.trace_event(f"{self._log_prefix}ended: {ended}")

    async def _stop_later(self, process: SimProcess, node: Node, ending: str, stop: trio.Event) -> None:
        rng = self._simulation.rng
        early = ending == "clean" and rng.random() < 0.2
        await trio.sleep(rng.random() * (EARLY_STOP_S if early else self._fault_plan.max_uptime_s))
        for _ in range(STOP_ATTEMPTS):
            if ending == "clean" or self._guard.may_stop_uncleanly(self._host):
                break
            await trio.sleep(WAIT_S)
        else:
            ending = "clean"
        if ending == "clean":
            stop.set()
            dies = "kill" in self._fault_plan.stop_kinds and rng.random() < 0.3  # on the way
            if dies and self._guard.may_stop_uncleanly(self._host):
                process.session.kill_at = process.session.disk.calls + int(rng.random() * DISK_CALLS_DURING_STOP)
            await trio.sleep(STOP_TIMEOUT_S)
            self._simulation.ledger.report_violation("stuck", f"{self._log_prefix}the node did not stop")
        if ending == "power":
            self._power_cut(node)
        process.kill()

    def _power_cut(self, node: Node) -> None:
        if self._guard.power_cut(self._host, node):
            host = self._simulation.host(self._host)
            host.lose_power()
            for path in self._guard.replaced_dirs(self._host):
                host.replace_disk(path)
                self._fault_plan.counts["replaced"] += 1
                self._simulation.trace_event(f"{self._log_prefix}another disk at {path}")

    def _disk_broke(self) -> None:
        self._broken = True

    def _classify_end(self, error: BaseException | None, *, stopped: bool) -> str:
        """Return how a run ended: ``killed``, ``disk failed``, ``stopped`` or ``failed``.

        ``failed`` is unexpected and reported as a violation, ``bad-response`` or ``no-start``. A cancellation of the
        whole simulation is raised again.
        """
        found = flatten_exceptions(error)
        if error is not None and all(isinstance(x, trio.Cancelled | KeyboardInterrupt) for x in found):
            raise error  # the whole run is over
        if any(isinstance(x, ProcessKilled) for x in found):
            return "killed"
        if found and self._broken and all(isinstance(x, AllLogDirsFailed | OSError) for x in found):
            return "disk failed"
        if found or not stopped:
            kind = "bad-response" if any(isinstance(x, InvalidResponse) for x in found) else "no-start"
            self._simulation.ledger.report_violation(kind, f"{self._log_prefix}{found!r}")
            return "failed"
        return "stopped"


async def run_with_faults(
    disturber: FaultInjector,
    lifecycles: Collection[NodeLifecycle],
    stable_at_s: float,
    nursery: trio.Nursery,
    *,
    disturbs: bool = True,
    die: bool = True,
) -> None:
    """Run nodes with faults until ``stable_at_s``, and return once each node has started its last run.

    The last runs go on in ``nursery``, without faults. Without ``die`` each node runs only once; without ``disturbs``
    no network and clock faults are injected.
    """
    stable_at = trio.Event()
    restless = len(lifecycles)

    def one_less() -> None:
        nonlocal restless
        restless -= 1
        if not restless:
            stable_at.set()

    for each in lifecycles:
        nursery.start_soon(each.run_until, stable_at_s if die else 0.0, one_less)
    async with trio.open_nursery() as trouble:
        if disturbs:
            trouble.start_soon(disturber.run)
        await stable_at.wait()
        if not die:
            await trio.sleep(stable_at_s)
        trouble.cancel_scope.cancel()
    disturber.stop_faults()
