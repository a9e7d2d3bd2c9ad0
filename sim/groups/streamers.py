"""Members of a streams group (KIP-1071): threads of an application, which do tasks.

The application has two parts: one stores what it reads, so there are standby tasks of it; the other does not. An
active task reads the one partition of its part's topic. ``TaskInOneRole``: what a thread is to do it does once.

A thread that does not hear an answer joins anew: in 4.3.1 nobody is told twice what its tasks are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_heartbeat as hb
from sim.clients import Again, Service, Unsure
from sim.groups.reading import FENCED, Reading, ReadingMember
from sim.groups.seats import Over
from sim.history import Place

if TYPE_CHECKING:
    from sim.world import World

REBALANCE_MS = 4_000
LEAVING = -1
REPEATED_SHARE = 0.1
"""Of the heartbeats that need not say what its tasks are: they may all the same, also while some are to be given up."""
CHANGELOG = "app-store-changelog"
PARTS = {"0": "w0", "1": "w1"}
"""Of the application, each with the topic it reads."""
Tasks = dict[str, set[int]]
Rows = list[hb.StreamsGroupHeartbeatResponseTaskIds] | None


def topology() -> hb.Topology:
    """What the application is made of."""
    stores = [hb.TopicInfo(CHANGELOG)]
    return hb.Topology(
        0, [hb.Subtopology(name, [topic], [], stores if name == "0" else []) for name, topic in PARTS.items()]
    )


class StreamsMember(ReadingMember):
    """One life of a thread."""

    def __init__(self, world: World, name: str, service: Service, shared: Reading, process: str) -> None:
        super().__init__(world, name, service, shared)
        self._process = process
        self._endpoint = world.rng.random() < 0.5
        self._standby: Tasks = {}
        self._said: tuple[list[Place], Tasks] | None = None

    def change(self) -> None:
        """Nothing: an application reads what it reads."""

    def _nothing_said(self) -> None:
        self._said = None

    def _has_said(self) -> bool:
        return self._said is None or self._said == (sorted(self.positions), self._standby)

    def _abandon(self) -> None:
        self._standby = {}
        super()._abandon()

    def _request(self) -> hb.StreamsGroupHeartbeatRequest:
        asked = hb.StreamsGroupHeartbeatRequest(self.group, self.id, self.epoch)
        if self.epoch == 0:
            asked.topology = topology()
            asked.process_id = self._process
            asked.client_tags = []
            if self._endpoint:
                asked.user_endpoint = hb.StreamsGroupHeartbeatRequestEndpoint(self.name, 1234)
        if self._said is None:
            asked.rebalance_timeout_ms = REBALANCE_MS
        if not (self._said and self._has_said()) or self.world.rng.random() < REPEATED_SHARE:
            active: Tasks = {}
            for part, topic in PARTS.items():
                numbers = {number for name, number in self.positions if name == topic}
                active |= {part: numbers} if numbers else {}
            asked.active_tasks, asked.standby_tasks, asked.warmup_tasks = _rows(active), _rows(self._standby), []
        return asked

    async def _beat(self) -> None:
        """One heartbeat, and what its answer says. Raises: Again."""
        began, cuts = self._book.now(), self.world.ledger.power_cuts
        says = (sorted(self.positions), self._standby)
        try:
            answer = await self.coordinator(self._request(), 0)
        except Unsure:
            self._abandon()
            raise
        code = answer.error_code
        self.check_sane(code, "heartbeat")
        if code in FENCED:
            self._abandon()
        if code:
            raise Again(ErrorCode(code).name)
        self._said = says
        self._told_epoch(answer.member_epoch, began, cuts)
        if answer.active_tasks is not None:
            active, standby = _tasks(answer.active_tasks), _tasks(answer.standby_tasks)
            for part, numbers in active.items():
                if numbers & standby.get(part, set()):
                    self.world.ledger.violation("TaskInOneRole", f"{self.id}: {part} {numbers} and {standby[part]}")
            self._standby = standby
            places = [(PARTS[part], number) for part, numbers in active.items() for number in numbers]
            self._told_target(places, began, cuts)

    async def _say_goodbye(self, *, for_good: bool) -> None:
        """Leave: nobody goes for a while only. Raises: Over."""
        self._book.gone(self.id)
        cuts = self.world.ledger.power_cuts
        with suppress(Again):
            answer = await self.coordinator(hb.StreamsGroupHeartbeatRequest(self.group, self.id, LEAVING), 0)
            self.check_sane(answer.error_code, "goodbye")
            if not answer.error_code:
                await self._commit_once_more(cuts)
        raise Over("left")


def _rows(tasks: Tasks) -> list[hb.StreamsGroupHeartbeatRequestTaskIds]:
    return [hb.StreamsGroupHeartbeatRequestTaskIds(part, sorted(numbers)) for part, numbers in sorted(tasks.items())]


def _tasks(rows: Rows) -> Tasks:
    return {row.subtopology_id: set(row.partitions) for row in rows or () if row.partitions}
