"""Simulated voters: dynamic ones are added and removed, and any may return with an empty disk.

A dynamic voter's disk is only wiped if that loses no committed record: the node is down, all others run and have the
committed log, and there are enough other voters. No disk is wiped while the leader changes the voters: a new voter
counts from the append on, and adding one with a wiped disk would lose its data. Of static voters (kraft.version 0) a
minority may lose their disks at any time, as long as all others have a log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.store.quorum_state_file import QUORUM_STATE, QuorumStateFile
from ottla.controller.storage_formatter import FormatPlan, InitialVoter, format_directories
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from ottla.wire.messages import control_records as ctl
from sim.scenarios.cluster import CLUSTER_ID, CONTROLLER_PORT

if TYPE_CHECKING:
    from sim.engine.hosts import SimHost
    from sim.engine.simulation import Simulation

DIRECTORY = "/data"
METADATA_LOG_DIR = f"{DIRECTORY}/{METADATA_TOPIC}-0"
REQUEST_TIMEOUT_S = 5.0
WIPED_SHARE = 0.8
"""Probability of an empty disk at a start at which the disk may be wiped."""
FIXED_WIPED_SHARE = 0.4
"""Probability of an empty disk at a start of a static voter, in runs that lose disks."""
LOST_DISK_SHARE = 0.6
"""Share of runs with static voters in which disks are lost."""


def replace_disk_contents(host: SimHost) -> None:
    """Remove all files and directories of a host's disk."""
    disk = host.disk
    disk.files.clear()
    disk.durable_files.clear()
    disk.dirs, disk.durable_dirs = {"/": None}, {"/": None}


class StaticVoters:
    """Static voters (``kraft.version`` 0) of a simulated quorum, some of which start with an empty, formatted disk.

    `maybe_wipe` replaces the disk of a starting node at random, if the quorum can lose it.
    """

    def __init__(
        self, simulation: Simulation, seed: int, hosts: dict[int, SimHost], living: Callable[[], dict[int, Any]]
    ) -> None:
        self._simulation = simulation
        self._rng = random.Random(f"fixed voters {seed}")
        self._hosts = hosts
        self._living = living
        self._loses = len(hosts) > 2 and self._rng.random() < LOST_DISK_SHARE
        self.wiped = 0

    def format(self, host: SimHost, number: int) -> None:
        """Format the disk of a host as ``ottla format`` does; each new disk has another directory id."""
        session = host.disk.session()
        directory = LogDirectory(session, DIRECTORY)
        plan = FormatPlan(number, CLUSTER_ID, bootstrap_feature_levels(None, {}, dynamic_quorum=False))
        own = bytes([5, number, *self.wiped.to_bytes(14, "big")])
        for _ in format_directories([directory], directory, plan, host.clock.wall_ms(), lambda: own):
            pass
        session.kill()

    def maybe_wipe(self, host: SimHost, number: int) -> None:
        """Replace the disk of a starting node by an empty, formatted one, at random and if the quorum can lose it."""
        if not self._loses or self._rng.random() >= FIXED_WIPED_SHARE or not self._may_wipe(number):
            return
        self._simulation.trace_event(f"{host.name}: wiped")
        self.wiped += 1
        replace_disk_contents(host)
        self.format(host, number)

    def _may_wipe(self, number: int) -> bool:
        """Return True if the other established voters are a majority of all voters, and each of them has its log."""
        whole = [self._has_log(i) for i in self._hosts if i != number and self._is_established_voter(i)]
        return len(whole) > len(self._hosts) // 2 and all(whole)

    def _is_established_voter(self, number: int) -> bool:
        """Return True if a node is established as a voter in its memory and on its disk."""
        parts = self._living().get(number)
        if parts is not None and parts.controller._raft.machine.hard_state.voter_state != events.VoterState.NORMAL:
            return False
        session = self._hosts[number].disk.session()
        path = f"{METADATA_LOG_DIR}/{QUORUM_STATE}"
        grown = (
            session.exists(path)
            and QuorumStateFile.read(session, path).hard_state.voter_state == events.VoterState.NORMAL
        )
        session.kill()
        return grown

    def _has_log(self, number: int) -> bool:
        parts = self._living().get(number)
        if parts is not None:
            return bool(parts.controller._raft.machine.flushed_offset > 0)
        return any(
            x.data
            for path, x in self._hosts[number].disk.files.items()
            if path.startswith(METADATA_LOG_DIR) and ".log" in path
        )


class DynamicVoters:
    """Dynamic voters (``kraft.version`` 1), which are added, removed, and started with an empty disk."""

    def __init__(
        self,
        simulation: Simulation,
        seed: int,
        count: int,
        listener: str,
        living: Callable[[], dict[int, Any]],
        *,
        stay: bool = False,
    ) -> None:
        """Create the voters of a run.

        Args:
            simulation: The run.
            seed: Seed of the changes.
            count: Number of nodes, voters or not.
            listener: Name of the controller listener.
            living: Returns the components of running nodes by id.
            stay: All nodes are voters initially, and only voters with a lost disk are removed.
        """
        self._simulation = simulation
        self._rng = random.Random(f"voters {seed}")
        self._listener = listener
        self._living = living
        self._count = count
        self.initial_voters = range(1, 2 + int(self._rng.random() * count))
        """Ids of the initial voters."""
        if stay:
            self.initial_voters = range(1, count + 1)
        self._stay = stay
        self._joins = self._rng.random() < 0.5
        self._lifecycles = dict.fromkeys(range(1, count + 1), 0)
        """Number of times each node's disk was wiped."""
        self._lost: int | None = None
        """Id of the node whose disk is wiped at its next start; None for none."""
        self.wiped = 0
        self.changed = 0

    def endpoint(self, number: int) -> ListenerEndpoint:
        """Return the endpoint of a node."""
        return ListenerEndpoint(self._listener, f"n{number}", CONTROLLER_PORT)

    def key(self, number: int) -> events.ReplicaKey:
        """Return the current replica key of a node: id and directory id."""
        return events.ReplicaKey(number, bytes([4, number, *self._lifecycles[number].to_bytes(14, "big")]))

    def config(self, number: int) -> QuorumConfig:
        """Return the quorum settings of a node."""
        others = tuple((f"n{i}", CONTROLLER_PORT) for i in range(1, self._count + 1))
        return QuorumConfig(self._listener, (self.endpoint(number),), (), others, auto_join=self._joins)

    def format(self, host: SimHost, number: int, *, votes: bool) -> None:
        """Format the disk of a host as ``ottla format``; with ``votes`` it gets the initial voters, else none."""
        session = host.disk.session()
        directory = LogDirectory(session, DIRECTORY)
        rows = (
            [InitialVoter(i, self.key(i).directory_id, (self.endpoint(i),)) for i in self.initial_voters]
            if votes
            else []
        )
        plan = FormatPlan(number, CLUSTER_ID, bootstrap_feature_levels(None, {}, dynamic_quorum=True), tuple(rows))
        for _ in format_directories(
            [directory], directory, plan, host.clock.wall_ms(), lambda: self.key(number).directory_id
        ):
            pass
        session.kill()

    # ------------------------------------------------------------------ changes

    async def run(self) -> None:
        """Add or remove random voters until cancelled."""
        while True:
            await trio.sleep(0.5 + self._rng.random() * 3)
            raft = self._leader()
            if raft is None:
                continue
            request = self._next(raft.machine.voters.current)
            if request is None:
                continue
            with trio.move_on_after(REQUEST_TIMEOUT_S):
                answer = (await raft.handle_request(request)).response
                self._simulation.trace_event(
                    f"{type(request).__name__} {request.voter.id}: {answer.error.name}, {answer.message}"
                )
                self.changed += not answer.error

    def _leader(self) -> Any:
        """Return the Raft client of the active controller; None without one."""
        found = [parts.controller for parts in self._living().values() if parts.controller.is_active]
        return found[0]._raft if found else None

    def _next(self, voters: tuple[events.ReplicaKey, ...]) -> events.AddVoter | events.RemoveVoter | None:
        """Return the next change: removal of a voter with a lost disk, else a random one; None if there is none."""
        gone = [v for v in voters if v != self.key(v.id)]
        if gone:
            return events.RemoveVoter(gone[0])
        number = 1 + int(self._rng.random() * self._count)
        if self.key(number) not in voters:
            end = self.endpoint(number)
            return events.AddVoter(self.key(number), (ctl.Endpoint(end.name, end.host, end.port),))
        return events.RemoveVoter(self.key(number)) if len(voters) > 1 and not self._stay else None

    # ------------------------------------------------------------------ disks

    def maybe_wipe(self, host: SimHost, number: int) -> None:
        """Replace the disk of a starting node by an empty, formatted one with another directory id.

        It happens at random or after `maybe_lose_disk`, and only if no committed record is lost.
        """
        lost = self._lost == number
        if lost:
            self._lost = None
        if not (lost and self._may_lose(number)) and (self._rng.random() >= WIPED_SHARE or not self._may_wipe(number)):
            return
        self._simulation.trace_event(f"{host.name}: wiped")
        self.wiped += 1
        self._lifecycles[number] += 1
        replace_disk_contents(host)
        self.format(host, number, votes=False)

    def _may_wipe(self, number: int) -> bool:
        raft, living = self._leader(), self._living()
        if raft is None or set(living) != set(self._lifecycles) - {number}:
            return False
        machine = raft.machine
        voters = machine.voters.current
        if any(v != self.key(v.id) for v in voters) or machine.voters.offset >= machine.high_watermark:
            return False
        if getattr(machine.state, "pending_change", None) is not None or (
            self.key(number) in voters and len(voters) < 3
        ):
            return False
        return all(parts.controller._raft.machine.flushed_offset >= machine.high_watermark for parts in living.values())

    def maybe_lose_disk(self, number: int) -> None:
        """Mark the disk of a stopping node as lost; it is wiped at the next start if the quorum can lose it."""
        self._lost = number

    def _may_lose(self, number: int) -> bool:
        """Return True if a voter may lose its disk: two majorities share a voter that keeps its disk.

        All others run, no other voter is lost, and no change of voters is pending.
        """
        machines = [parts.controller._raft.machine for parts in self._living().values()]
        if set(self._living()) != set(self._lifecycles) - {number}:
            return False
        voters = machines[0].voters.current
        if any(m.voters.current != voters or getattr(m.state, "pending_change", None) is not None for m in machines):
            return False
        committed = max(m.high_watermark for m in machines)
        if any(m.voters.offset >= committed for m in machines) or any(v != self.key(v.id) for v in voters):
            return False
        return self.key(number) in voters and len(voters) > 2
