"""What goes wrong in a run: each seed draws which kinds there are (a swarm) and when each strikes."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from sim.processes import Process
    from sim.world import World

FATES = ("kill", "power", "clean", "eio", "enospc")
"""How a life of a node ends, or what its disk does in it."""
DISTURBANCES = ("cut", "reset")
"""What happens beside, to the network and to whoever runs."""
BROKEN_DISK = {
    "eio": (errno.EIO, ("pwrite", "fsync", "open", "pread")),
    "enospc": (errno.ENOSPC, ("pwrite", "open")),
}
SHARE = 0.6
CALLS_BEFORE_A_FAULT = 800
CALLS_BEFORE_A_DEATH = 600
LONGEST_LIFE_S = 8.0


@dataclass
class Swarm:
    """What one seed has in store."""

    fates: list[str]
    disturbances: list[str]
    counted: Counter[str] = field(default_factory=Counter)
    """How often each struck."""

    @classmethod
    def drawn(cls, rng: random.Random, *, synced: bool = False) -> Swarm:
        """From the seed; ``synced``: power cuts and nothing else."""
        if synced:
            return cls(["power"], [])
        fates = [f for f in FATES if rng.random() < SHARE] or ["kill"]
        return cls(fates, [d for d in DISTURBANCES if rng.random() < SHARE])


def break_disk(process: Process, kind: str, hit: Callable[[], None]) -> None:
    """Some call from now on fails, once."""
    session = process.session
    at = session.disk.calls + int(process.world.rng.random() * CALLS_BEFORE_A_FAULT)
    number, calls = BROKEN_DISK[kind]

    def fault(what: str, path: str) -> OSError | None:
        if session.disk.calls >= at and what in calls:
            session.fault = None
            hit()
            return OSError(number, "injected", path)
        return None

    session.fault = fault


async def disturb(world: World, swarm: Swarm, at_peace: Callable[[], bool]) -> None:
    """Now and then one of the disturbances, until there is peace."""
    while not at_peace():
        await trio.sleep(1 + world.rng.random() * 6)
        if swarm.disturbances and not at_peace():
            kind = world.rng.choice(swarm.disturbances)
            swarm.counted[kind] += 1
            world.note(kind)
            STRIKES[kind](world)


def _node(world: World) -> str:
    return world.rng.choice(
        [name for name, host in world.hosts.items() if name.startswith("node") and host.up] or ["node"]
    )


def cut(world: World) -> None:
    """A host hears nobody and nobody hears it for a while; then what was sent arrives."""
    host = world.host(_node(world))
    host.deaf_until = host.mute_until = world.now_s() + world.rng.random() * 3


def reset(world: World) -> None:
    """One connection in two breaks: a switch forgot them, and says so."""
    for stream in world.network.some():
        stream.reset()


STRIKES: dict[str, Callable[[World], None]] = {"cut": cut, "reset": reset}
