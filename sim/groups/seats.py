"""Seats in a group: at each sits one member after the other, and each comes to its own end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator as fc
from ottla.world.memory_disk import Killed
from sim.clients import Address, Again, Service, SimClient

if TYPE_CHECKING:
    from sim.world import World

FATES = ("leave", "kill", "vanish", "pause", "pause", "change", "change")
"""It says goodbye; its process is killed; its machine is gone; it stands still; it wants something else."""
LONGEST_REST_S = 12.0
LONGEST_PAUSE_S = 10.0
LONGEST_GONE_S = 3.0
NEVER_TOLD = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    }
)
"""What no member in here deserves."""


class Over(Exception):
    """A life of a member is at its end: another begins."""


class Member(SimClient, ABC):
    """One life of a member: its process, what it knows of its coordinator, and what it is asked to do."""

    def __init__(self, world: World, name: str, service: Service, group: str) -> None:
        super().__init__(world, name, service)
        self.group = group
        self.id = f"{name}.{world.rng.randbytes(4).hex()}"
        self.leaving = False
        """It is to say goodbye."""
        self.calm = False
        """It is to do nothing but its duty from now on."""
        self.heard_s = -1.0
        """When its coordinator last told it that all is well."""
        self._at: Address | None = None

    def forget_leaders(self) -> None:
        """The coordinator, too, is asked for again."""
        super().forget_leaders()
        self._at = None

    async def coordinator(self, request: Any, version: int) -> Any:
        """The answer of the group's coordinator. Raises: Again."""
        if self._at is None:
            found = (await self.call(fc.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)).coordinators[0]
            if found.error_code:
                raise Again(ErrorCode(found.error_code).name)
            self._at = (found.host, found.port)
        return await self.call(request, version, self._at)

    def check_sane(self, code: int, what: str) -> None:
        """What nobody should be told is a violation, but for a power cut, after which groups may be as they were."""
        if code in NEVER_TOLD and not self.world.ledger.power_cuts:
            self.world.ledger.violation("group-refused", f"{self.group}: {what} of {self.name}: {ErrorCode(code).name}")

    @abstractmethod
    async def run(self) -> None:
        """Be a member until it has left. Raises: Over."""

    @abstractmethod
    def change(self) -> None:
        """Want something else from now on."""

    @abstractmethod
    def over(self) -> None:
        """Its process is gone: it has nothing any more."""


class Seat:
    """One seat: lives follow one another until the world ends."""

    def __init__(self, world: World, group: str, make: Callable[[], Member], counted: Counter[str]) -> None:
        self._world = world
        self.group = group
        self._make = make
        self._counted = counted
        self.calm = False
        self.member: Member | None = None
        """Who sits there now."""

    def calm_down(self) -> None:
        """Nothing goes wrong with its members any more."""
        self.calm = True
        if self.member is not None:
            self.member.calm = True

    async def run(self) -> None:
        """Life after life, until cancelled."""
        rng = self._world.rng
        while True:
            await trio.sleep(rng.random() * LONGEST_GONE_S)
            await self._one()

    async def _one(self) -> None:
        member = self.member = self._make()
        member.calm = self.calm

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._go_wrong, member)
                try:
                    await member.run()
                except Over as error:
                    self._world.note(f"{member.name}: over: {error}")
                nursery.cancel_scope.cancel()

        error = await member.process.live(main)
        self.member = None
        member.over()
        if error is not None and not isinstance(error, Killed):
            raise error

    async def _go_wrong(self, member: Member) -> None:
        rng = self._world.rng
        while True:
            await trio.sleep(0.5 + rng.random() * LONGEST_REST_S)
            if self.calm:
                return
            fate = rng.choice(FATES)
            self._counted[f"member-{fate}"] += 1
            self._world.note(f"{member.name}: {fate}")
            match fate:
                case "leave":
                    member.leaving = True
                case "kill":
                    member.process.kill()
                case "vanish":
                    member.process.vanish()
                case "pause":
                    member.process.pause()
                    await trio.sleep(rng.random() * LONGEST_PAUSE_S)
                    member.process.resume()
                case _:
                    member.change()
