"""Scripted faults of voters, in orders that random faults rarely produce.

``_older``: a leader restarts with records of an epoch before the last, and is stopped once another voter has some of
them and no record of the new epoch; then a voter without them becomes leader (figure 8 of the Raft paper).
``_forgotten``: a voter falls behind, another one loses its disk, and the leader is cut off from both: these two must
not form a majority. ``_hurried``: an isolated leader is requested to remove all other voters at once: only one may be
removed at a time, or the others could commit without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.epoch_states import RaftLeaderState

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation
    from sim.faults.node_lifecycle import NodeLifecycle
    from sim.scenarios.voter_changes import DynamicVoters

SHARE = 0.6
"""Share of runs with three or more voters that have scripted faults."""
REST_S = 2.0
BEHIND_S = 1.5
"""Duration of a voter's isolation in seconds: less than its election timeout."""
ALONE_S = 7.0
"""Duration of the leader's isolation in seconds: enough for another election."""
LOOK_S = 0.001
SEEN_S = 0.1
"""Time in seconds for observing the records that a leader considers committed."""


def uses_scripted_faults(seed: int, nodes: int) -> bool:
    """Return True if the run of a seed has scripted faults: a random share of those with three or more voters."""
    return nodes > 2 and random.Random(f"on stage {seed}").random() < SHARE


class ScriptedFaults:
    """Scripted faults, one after the other, in some of the runs."""

    def __init__(
        self,
        simulation: Simulation,
        seed: int,
        voters: DynamicVoters | None,
        lifecycles: Mapping[int, NodeLifecycle],
        living: Callable[[], dict[int, Any]],
        until_s: float,
    ) -> None:
        """Create the scripts.

        Args:
            simulation: the run.
            seed: seed of the scripts.
            voters: dynamic voters; None with static voters.
            lifecycles: life cycles of the nodes by id.
            living: returns the components of running nodes by id.
            until_s: time of the last kill.
        """
        self._simulation = simulation
        self._rng = random.Random(f"scenes {seed}")
        self._voters = voters
        self._lifecycles = lifecycles
        self._living = living
        self._until_s = until_s
        self.played = 0

    async def run(self) -> None:
        """Run random scripts, one after the other, until cancelled; none starts near the time of the last kill."""
        while True:
            await trio.sleep(REST_S * (0.5 + self._rng.random()))
            leader = self._leader()
            if leader is not None and self._simulation.now_s() < self._until_s - BEHIND_S:
                later = [] if self._voters is None else [self._forgotten, self._hurried]
                scene = self._rng.choice([self._older, *later])
                await scene(*leader)

    def _leader(self) -> tuple[int, Any] | None:
        """Return id and Raft client of the active leader if of at least three voters none has lost its disk, else None.

        Removing a voter while another one is lost may leave no majority.
        """
        for number, parts in self._living().items():
            raft = parts.controller._raft
            if parts.controller.is_active:
                voters = raft.machine.voters.current
                are_there = self._voters is None or all(v == self._voters.key(v.id) for v in voters)
                return (number, raft) if len(voters) > 2 and are_there else None
        return None

    async def _forgotten(self, leader: int, raft: Any) -> None:
        others = [v.id for v in raft.machine.voters.current if v.id != leader]
        behind, lost = self._rng.sample(others, 2)
        self._simulation.trace_event(f"scene: n{behind} falls behind, n{lost} loses its disk, n{leader} is alone")
        self._cut([behind], BEHIND_S)
        await trio.sleep(BEHIND_S * (0.5 + self._rng.random() / 2))
        process = self._lifecycles[lost].process
        if process is None or process.dead or self._simulation.now_s() >= self._until_s:
            return
        self.played += 1
        assert self._voters is not None
        self._voters.maybe_lose_disk(lost)
        process.kill()
        self._cut([leader], ALONE_S)
        self._cut([behind], 0, [n for n in self._lifecycles if n != leader])
        await trio.sleep(ALONE_S)

    async def _older(self, old: int, raft: Any) -> None:
        others = self._rng.sample([v.id for v in raft.machine.voters.current if v.id != old], 2)
        if len(raft.machine.voters.current) != 3:
            return
        self._simulation.trace_event(f"scene: n{old} has records that nobody has, and comes back with them")
        self.played += 1
        self._cut([old], ALONE_S)
        await trio.sleep(BEHIND_S * (0.5 + self._rng.random() / 2))
        self._kill(old)
        if not await self._until(lambda: any(self._is(one, RaftLeaderState) for one in others)):
            return
        newer = next(one for one in others if self._is(one, RaftLeaderState))
        third = next(one for one in others if one != newer)
        self._cut([newer], ALONE_S)
        if third not in self._living():
            return
        self._cut([old], 0, [third])
        end = self._living()[third].controller._raft.machine.log_summary.end_offset
        if await self._until(lambda: self._knows(old, third) > end):
            self._cut([old], ALONE_S)
            await trio.sleep(SEEN_S)
            self._kill(old)
            self._cut([newer], 0, [third])
            await trio.sleep(ALONE_S)

    def _is(self, one: int, state: type) -> bool:
        parts = self._living().get(one)
        return parts is not None and isinstance(parts.controller._raft.machine.state, state)

    def _knows(self, leader: int, other: int) -> int:
        """Return the log end offset of ``other`` at a leader; -1 if unknown, or if ``leader`` does not lead."""
        if not self._is(leader, RaftLeaderState):
            return -1
        replicas = self._living()[leader].controller._raft.machine.state.replicas
        return max((progress.end_offset for key, progress in replicas.items() if key.id == other), default=-1)

    def _kill(self, one: int) -> bool:
        """Kill a node; return False if it does not run, or if the time of kills is over."""
        process = self._lifecycles[one].process
        if process is None or process.dead or self._simulation.now_s() >= self._until_s:
            return False
        process.kill()
        return True

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait up to `ALONE_S`, and not beyond the time of kills, until a condition holds; return True if it holds."""
        until = self._simulation.now_s() + ALONE_S
        while not holds():
            if self._simulation.now_s() > min(until, self._until_s):
                return False
            await trio.sleep(LOOK_S)
        return True

    async def _hurried(self, leader: int, raft: Any) -> None:
        others = [v for v in raft.machine.voters.current if v.id != leader]
        self._simulation.trace_event(f"scene: n{leader} is alone, and asked to let all go")
        self.played += 1
        self._cut([leader], ALONE_S)
        for voter in others:
            self._simulation.start_soon(lambda v=voter: self._ask(raft, events.RemoveVoter(v)))  # type: ignore[misc]
        await trio.sleep(ALONE_S)

    async def _ask(self, raft: Any, request: events.RemoveVoter) -> None:
        with trio.move_on_after(ALONE_S):
            answer = (await raft.handle_request(request)).response
            self._simulation.trace_event(f"RemoveVoter {request.voter.id}: {answer.error.name}, {answer.message}")

    def _cut(self, some: Collection[int], for_s: float, others: Collection[int] | None = None) -> None:
        """Cut the links between nodes ``some`` and ``others`` (all others if None) for ``for_s``; 0 restores them."""
        over = self._simulation.now_s() + for_s
        for one in some:
            for other in self._lifecycles if others is None else others:
                if other not in some:
                    for source, target in ((one, other), (other, one)):
                        self._simulation.network.link(f"n{source}", f"n{target}").cut_until = over
