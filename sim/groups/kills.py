"""Nodes that coordinate groups are killed, one after the other, while nothing else goes wrong.

``group-late``: `ON_S` after another node has read a group's log, none of its members has been heard, or not all of them
when a request of theirs that was under way has had its time, too: these members do one thing at a time. What members
had committed must not go back, and records that are shared go to somebody: as always.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.groups.coordinator import TOPIC
from sim.cluster import ANSWER_S, Cluster
from sim.invariants import Invariants
from sim.scenario import Result

if TYPE_CHECKING:
    from ottla.broker.parts import BrokerComponents
    from sim.groups.seats import Member
    from sim.groups.workload import Groups
    from sim.lives import Lives
    from sim.world import World

ON_S = 3.0
REST_S = 4.0
LOOK_S = 0.05
MOST_WAITED_S = 60.0


class Killer:
    """The one who kills."""

    def __init__(
        self, world: World, groups: Groups, lives: Mapping[str, Lives], is_full: Callable[[], bool], most: int
    ) -> None:
        """``is_full``: whether every replica is back; ``most``: so many nodes are killed."""
        self._world = world
        self._groups = groups
        self._lives = lives
        self._is_full = is_full
        self._most = most
        self._chance = random.Random(f"kills {world.seed}")
        self.kills = 0
        self.slowest_s = 0.0
        """Longest from a log that was read to a member heard."""

    async def run(self) -> None:
        """Kill so many."""
        while self.kills < self._most:
            await trio.sleep(REST_S * (0.5 + self._chance.random()))
            if not await self._within(MOST_WAITED_S, self._is_well):
                self._world.ledger.violation("stuck", f"before kill {self.kills + 1}")
                return
            await self._kill(self._chance.choice(self._groups.names))

    def _is_well(self) -> bool:
        since = self._world.now_s() - ON_S
        seats = self._groups.seats
        heard = bool(seats) and all(seat.member is not None and seat.member.heard_s > since for seat in seats)
        return heard and self._is_full() and all(self._coordinator(x) for x in self._groups.names)

    def _members(self, group: str) -> list[Member]:
        return [seat.member for seat in self._groups.seats if seat.member is not None and seat.group == group]

    def _unheard(self, group: str, were: Sequence[Member], since_s: float) -> list[str]:
        """Those of them who are still members, and have not been heard since."""
        there = self._members(group)
        return [x.id for x in were if x in there and x.heard_s <= since_s]

    def _parts(self) -> dict[str, BrokerComponents]:
        return {
            host: x.node.components
            for host, x in self._lives.items()
            if x.node is not None and x.node.components is not None
        }

    def _coordinator(self, group: str) -> str | None:
        """Whose node has read a group's log and leads it."""
        for host, parts in self._parts().items():
            number = parts.groups.partition_for(group)
            for shard in parts.groups._runtime:
                if (
                    shard.replica.partition == number
                    and shard.state is CoordinatorState.ACTIVE
                    and shard.replica.is_leader
                ):
                    return host
        return None

    async def _kill(self, group: str) -> None:
        host = self._coordinator(group)
        process = None if host is None else self._lives[host].process
        if host is None or process is None:
            return
        world = self._world
        concerned = [name for name in self._groups.names if self._coordinator(name) == host]
        self.kills += 1
        world.note(f"kill {self.kills}: {host}, {concerned} in {TOPIC}")
        process.kill()
        async with trio.open_nursery() as waiting:
            for name in concerned:
                waiting.start_soon(self._goes_on, name, host, self._members(name))

    async def _goes_on(self, name: str, host: str, were: Sequence[Member]) -> None:
        """Wait for a group whose coordinator was killed."""
        world = self._world
        if not await self._within(MOST_WAITED_S, partial(self._moved, name, host)):
            world.ledger.violation("stuck", f"nobody coordinates {name} after kill {self.kills}")
            return
        read_s = world.now_s()
        if not were:
            return
        first = await self._within(ON_S, lambda: len(self._unheard(name, were, read_s)) < len(were))
        first_s = world.now_s() - read_s
        if (
            not await self._within(ON_S + ANSWER_S - first_s, lambda: not self._unheard(name, were, read_s))
            or not first
        ):
            who = self._unheard(name, were, read_s)
            world.ledger.violation("group-late", f"{name} after kill {self.kills}: {who} were not heard")
        self.slowest_s = max(self.slowest_s, first_s)
        world.note(f"{name} goes on after {first_s:.2f} s, with all members after {world.now_s() - read_s:.2f} s")

    def _moved(self, group: str, host: str) -> bool:
        return self._coordinator(group) not in (None, host)

    async def _within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        for _ in range(int(seconds / LOOK_S)):
            if holds():
                return True
            await trio.sleep(LOOK_S)
        return holds()


class Kills(Cluster):
    """A run of three nodes under way."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, groups=True)
        assert self.groups is not None
        self.swarm.fates, self.swarm.disturbances, self.swarm.slow_s = [], [], 0.0
        self.groups.is_quiet = True
        self.killer = Killer(self.world, self.groups, self.lives, self.is_full, most)

    async def run(self) -> None:
        """All kills, then the reckoning."""
        async with trio.open_nursery() as everything:
            everything.start_soon(self._work)
            everything.start_soon(Invariants(self.world, self.living).run)
            for each in self.lives.values():
                everything.start_soon(each.until_killed)
            await self.killer.run()
            self.swarm.counted["killed"] = self.killer.kills
            self.swarm.counted["slowest-ms"] = int(self.killer.slowest_s * 1000)
            self.world.draining = True
            await self._finish()
            everything.cancel_scope.cancel()


def simulate_kills(seed: int, most: int, listen: Callable[[str], None] | None = None) -> Result:
    """Run one seed; ``listen`` is told each event."""
    run = Kills(seed, most)
    run.world.trace.listen = listen
    run.world.run(run.run)
    return run.result()
