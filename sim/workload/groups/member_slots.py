"""Slots of a group in a simulated run, which run one member after the other, with faults; base class of members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.env.memory_disk import ProcessKilled
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator
from sim.workload.clients import Address, ClusterService, RetriableError, SimClient

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

MEMBER_END_KINDS = ("leave", "kill", "vanish", "pause", "pause", "change", "change")
"""Kinds of a member's end: leave, kill, loss of the host, pause, change of subscription."""
MAX_INTERVAL_S = 12.0
MAX_PAUSE_S = 10.0
MAX_DOWNTIME_S = 3.0
UNEXPECTED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    }
)
"""Errors that no member should get."""


class MemberEnded(Exception):
    """Raised at the end of a member; its slot starts another one."""


class SimGroupMember(SimClient, ABC):
    """Base class of group members: a client with a process of its own, from its start to its end."""

    def __init__(self, simulation: Simulation, name: str, service: ClusterService, group: str) -> None:
        super().__init__(simulation, name, service)
        self.group = group
        self.id = f"{name}.{simulation.rng.randbytes(4).hex()}"
        self.leaving = False
        """True if the member is to leave the group."""
        self.is_stable_phase = False
        """True if the member no longer injects faults such as slow revocations."""
        self.last_heartbeat_s = -1.0
        """Time of the last successful response of the coordinator."""
        self._at: Address | None = None

    def invalidate_leaders(self) -> None:
        """Forget leaders and the coordinator."""
        super().invalidate_leaders()
        self._at = None

    async def call_coordinator(self, request: Any, version: int) -> Any:
        """Send a request to the group's coordinator and return the response. Raises RetriableError."""
        if self._at is None:
            found = (
                await self.call(find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
            ).coordinators[0]
            if found.error_code:
                raise RetriableError(ErrorCode(found.error_code).name)
            self._at = (found.host, found.port)
        return await self.call(request, version, self._at)

    def check_expected_error(self, code: int, request_name: str) -> None:
        """Report ``group-refused`` for an error code of `UNEXPECTED_ERRORS`; other codes are accepted.

        Nothing is reported in a run with a power cut, which may restore old groups.
        """
        if code in UNEXPECTED_ERRORS and not self.simulation.ledger.power_cuts:
            self.simulation.ledger.report_violation(
                "group-refused", f"{self.group}: {request_name} of {self.name}: {ErrorCode(code).name}"
            )

    @abstractmethod
    async def run(self) -> None:
        """Run the member until it has left. Raises MemberEnded."""

    @abstractmethod
    def change_subscription(self) -> None:
        """Change the subscription at random, if the protocol has one."""

    @abstractmethod
    def on_process_end(self) -> None:
        """Record for the checker that the member's process has ended; called by its slot."""


class MemberSlot:
    """Slot of a group that runs one member after the other, with random faults, until the end of the run."""

    def __init__(
        self, simulation: Simulation, group: str, make: Callable[[], SimGroupMember], counted: Counter[str]
    ) -> None:
        self._simulation = simulation
        self.group = group
        self._make = make
        self._counted = counted
        self.is_stable_phase = False
        self.member: SimGroupMember | None = None
        """Current member of the slot; None between two members."""

    def stop_faults(self) -> None:
        """Inject no more faults into the current member and later ones."""
        self.is_stable_phase = True
        if self.member is not None:
            self.member.is_stable_phase = True

    async def run(self) -> None:
        """Run one member after the other, each after a random pause, until cancelled; inject random faults.

        A fault (leave, kill, loss of the host) or the member itself ends it; after `stop_faults` there are none.
        """
        rng = self._simulation.rng
        while True:
            await trio.sleep(rng.random() * MAX_DOWNTIME_S)
            await self._run_member()

    async def _run_member(self) -> None:
        member = self.member = self._make()
        member.is_stable_phase = self.is_stable_phase

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inject_faults, member)
                try:
                    await member.run()
                except MemberEnded as error:
                    self._simulation.trace_event(f"{member.name}: over: {error}")
                nursery.cancel_scope.cancel()

        error = await member.process.run_until_end(main)
        self.member = None
        member.on_process_end()
        if error is not None and not isinstance(error, ProcessKilled):
            raise error

    async def _inject_faults(self, member: SimGroupMember) -> None:
        rng = self._simulation.rng
        while True:
            await trio.sleep(0.5 + rng.random() * MAX_INTERVAL_S)
            if self.is_stable_phase:
                return
            fault_kind = rng.choice(MEMBER_END_KINDS)
            self._counted[f"member-{fault_kind}"] += 1
            self._simulation.trace_event(f"{member.name}: {fault_kind}")
            match fault_kind:
                case "leave":
                    member.leaving = True
                case "kill":
                    member.process.kill()
                case "vanish":
                    member.process.vanish()
                case "pause":
                    member.process.pause()
                    await trio.sleep(rng.random() * MAX_PAUSE_S)
                    member.process.resume()
                case _:
                    member.change_subscription()
