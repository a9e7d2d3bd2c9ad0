"""Kills of group coordinators, one after the other, without other faults.

``group-late``: `RECOVERY_TIMEOUT_S` after another node has loaded a group, none of its members has sent a heartbeat, or
not all of them after the timeout of a pending request: these members send one request at a time. Committed offsets must
not go back, and shared records are delivered, as always.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.groups.coordinator import TOPIC
from sim.checkers.cluster_invariants import ClusterInvariants
from sim.scenarios.cluster import REQUEST_TIMEOUT_S, ClusterScenario
from sim.scenarios.single_node import SimulationResult

if TYPE_CHECKING:
    from ottla.broker.components.broker_components import BrokerComponents
    from sim.engine.simulation import Simulation
    from sim.faults.node_lifecycle import NodeLifecycle
    from sim.workload.groups.groups_workload import GroupsWorkload
    from sim.workload.groups.member_slots import SimGroupMember

RECOVERY_TIMEOUT_S = 3.0
PAUSE_S = 4.0
POLL_INTERVAL_S = 0.05
MAX_WAIT_S = 60.0


class CoordinatorKiller:
    """Killer of nodes that coordinate groups; it checks that the groups recover in time."""

    def __init__(
        self,
        simulation: Simulation,
        groups: GroupsWorkload,
        lifecycles: Mapping[str, NodeLifecycle],
        is_full: Callable[[], bool],
        most: int,
    ) -> None:
        """Create the killer of a run.

        Args:
            simulation: the run.
            groups: groups whose coordinators are killed.
            lifecycles: life cycles of the nodes by host.
            is_full: returns True if every replica is in sync.
            most: number of kills.
        """
        self._simulation = simulation
        self._groups = groups
        self._lifecycles = lifecycles
        self._is_full = is_full
        self._most = most
        self._rng = random.Random(f"kills {simulation.seed}")
        self.kills = 0
        self.slowest_s = 0.0
        """Longest time from the loading of a group to the first heartbeat of a member."""

    async def run(self) -> None:
        """Kill one coordinator after the other, and wait for the recovery each time, until all kills are done.

        A cluster that is not ready within `MAX_WAIT_S` is reported as ``stuck`` and ends the kills.
        """
        while self.kills < self._most:
            await trio.sleep(PAUSE_S * (0.5 + self._rng.random()))
            if not await self._wait_for(MAX_WAIT_S, self._is_cluster_ready):
                self._simulation.ledger.report_violation("stuck", f"before kill {self.kills + 1}")
                return
            await self._kill(self._rng.choice(self._groups.names))

    def _is_cluster_ready(self) -> bool:
        since = self._simulation.now_s() - RECOVERY_TIMEOUT_S
        seats = self._groups.member_slots
        received = bool(seats) and all(
            seat.member is not None and seat.member.last_heartbeat_s > since for seat in seats
        )
        return received and self._is_full() and all(self._coordinator(x) for x in self._groups.names)

    def _members(self, group: str) -> list[SimGroupMember]:
        return [seat.member for seat in self._groups.member_slots if seat.member is not None and seat.group == group]

    def _silent_members(self, group: str, were: Sequence[SimGroupMember], since_s: float) -> list[str]:
        """Return the ids of those members of ``were`` that still exist and have sent no heartbeat since ``since_s``."""
        there = self._members(group)
        return [x.id for x in were if x in there and x.last_heartbeat_s <= since_s]

    def _parts(self) -> dict[str, BrokerComponents]:
        return {
            host: x.node.components
            for host, x in self._lifecycles.items()
            if x.node is not None and x.node.components is not None
        }

    def _coordinator(self, group: str) -> str | None:
        """Return the host that leads and has loaded the partition of a group; None if no node has."""
        for host, parts in self._parts().items():
            number = parts.groups.partition_for(group)
            for shard in parts.groups:
                if (
                    shard.replica.partition == number
                    and shard.state is CoordinatorState.ACTIVE
                    and shard.replica.is_leader
                ):
                    return host
        return None

    async def _kill(self, group: str) -> None:
        host = self._coordinator(group)
        process = None if host is None else self._lifecycles[host].process
        if host is None or process is None:
            return
        simulation = self._simulation
        concerned = [name for name in self._groups.names if self._coordinator(name) == host]
        self.kills += 1
        simulation.trace_event(f"kill {self.kills}: {host}, {concerned} in {TOPIC}")
        process.kill()
        async with trio.open_nursery() as waiting:
            for name in concerned:
                waiting.start_soon(self._wait_for_recovery, name, host, self._members(name))

    async def _wait_for_recovery(self, name: str, host: str, were: Sequence[SimGroupMember]) -> None:
        """Wait until another node than ``host`` coordinates a group, and the members ``were`` send heartbeats.

        Reports ``stuck`` or ``group-late`` if that takes too long.
        """
        simulation = self._simulation
        if not await self._wait_for(MAX_WAIT_S, partial(self._has_moved, name, host)):
            simulation.ledger.report_violation("stuck", f"nobody coordinates {name} after kill {self.kills}")
            return
        read_s = simulation.now_s()
        if not were:
            return
        first = await self._wait_for(
            RECOVERY_TIMEOUT_S, lambda: len(self._silent_members(name, were, read_s)) < len(were)
        )
        first_s = simulation.now_s() - read_s
        if (
            not await self._wait_for(
                RECOVERY_TIMEOUT_S + REQUEST_TIMEOUT_S - first_s, lambda: not self._silent_members(name, were, read_s)
            )
            or not first
        ):
            silent = self._silent_members(name, were, read_s)
            simulation.ledger.report_violation("group-late", f"{name} after kill {self.kills}: {silent} were not heard")
        self.slowest_s = max(self.slowest_s, first_s)
        simulation.trace_event(
            f"{name} goes on after {first_s:.2f} s, with all members after {simulation.now_s() - read_s:.2f} s"
        )

    def _has_moved(self, group: str, host: str) -> bool:
        return self._coordinator(group) not in (None, host)

    async def _wait_for(self, seconds: float, holds: Callable[[], bool]) -> bool:
        for _ in range(int(seconds / POLL_INTERVAL_S)):
            if holds():
                return True
            await trio.sleep(POLL_INTERVAL_S)
        return holds()


class CoordinatorKillScenario(ClusterScenario):
    """Simulated run of three nodes in which group coordinators are killed, without other faults."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, groups=True)
        assert self.groups is not None
        self.fault_plan.stop_kinds, self.fault_plan.fault_kinds, self.fault_plan.max_initial_sync_s = [], [], 0.0
        self.groups.is_quiescent = True
        self.killer = CoordinatorKiller(self.simulation, self.groups, self.lifecycles, self.is_full, most)

    async def run(self) -> None:
        """Run all kills, then verify."""
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            everything.start_soon(ClusterInvariants(self.simulation, self.live_nodes).run)
            for each in self.lifecycles.values():
                everything.start_soon(each.run_until_killed)
            await self.killer.run()
            self.fault_plan.counts["killed"] = self.killer.kills
            self.fault_plan.counts["slowest-ms"] = int(self.killer.slowest_s * 1000)
            self.simulation.draining = True
            await self._finish()
            everything.cancel_scope.cancel()


def simulate_coordinator_kills(seed: int, most: int, listen: Callable[[str], None] | None = None) -> SimulationResult:
    """Simulate ``most`` kills of group coordinators with one seed and return the result.

    ``listen`` is called with each event of the trace.
    """
    run = CoordinatorKillScenario(seed, most)
    run.simulation.trace.listen = listen
    run.simulation.run(run.run)
    return run.result()
