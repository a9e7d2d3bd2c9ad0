"""Members of a consumer group of the new protocol (KIP-848), as Kafka's own client is one.

They subscribe by name or by a regular expression, and may go for a while and return under their instance id.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat as hb
from sim.clients import Again, Service
from sim.groups.reading import FENCED, Reading, ReadingMember
from sim.groups.seats import Over
from sim.history import Place

if TYPE_CHECKING:
    from sim.world import World

REBALANCE_MS = 4_000
LEAVING, LEAVING_FOR_A_WHILE = -1, -2
ASSIGNORS = (None, None, "uniform", "range")


class Wants(NamedTuple):
    """What a member subscribes to."""

    names: tuple[str, ...]
    regex: str | None
    topics: tuple[str, ...]
    """All of it, as topics."""


class ConsumerMember(ReadingMember):
    """One life of a member."""

    def __init__(
        self,
        world: World,
        name: str,
        service: Service,
        shared: Reading,
        choice: tuple[Wants, ...],
        instance_id: str | None = None,
    ) -> None:
        """``choice``: what it may want."""
        super().__init__(world, name, service, shared, instance_id)
        self._choice = choice
        self.wants = world.rng.choice(choice)
        self._assignor = world.rng.choice(ASSIGNORS)
        self._said: tuple[Wants, list[Place]] | None = None
        """What the coordinator has heard; None: it is told all."""

    def change(self) -> None:
        """Subscribe to something else."""
        self.wants = self.world.rng.choice(self._choice)

    def _nothing_said(self) -> None:
        self._said = None

    def _has_said(self) -> bool:
        return self._said is None or self._said[1] == sorted(self.positions)

    def _request(self) -> hb.ConsumerGroupHeartbeatRequest:
        owned = sorted(self.positions)
        asked = hb.ConsumerGroupHeartbeatRequest(self.group, self.id, self.epoch, self._instance_id)
        if self._said is None or self._said[0] != self.wants:
            asked.subscribed_topic_names = list(self.wants.names)
            asked.subscribed_topic_regex = self.wants.regex or ""
        if self._said is None:
            asked.rebalance_timeout_ms = REBALANCE_MS
            asked.server_assignor = self._assignor
        if self._said is None or self._said[1] != owned:
            asked.topic_partitions = self._rows(owned)
        return asked

    def _rows(self, places: list[Place]) -> list[hb.ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_name: dict[str, list[int]] = {}
        for topic, partition in places:
            by_name.setdefault(topic, []).append(partition)
        row = hb.ConsumerGroupHeartbeatRequestTopicPartitions
        return [row(topic_id, by_name[name]) for topic_id, name in self._shared.ids.items() if name in by_name]

    async def _beat(self) -> None:
        """One heartbeat, and what its answer says. Raises: Again, Over."""
        began, cuts = self._book.now(), self.world.ledger.power_cuts
        says = (self.wants, sorted(self.positions))
        if self.epoch == 0:
            self._book.comes_in()
        answer = await self.coordinator(self._request(), 1)
        code = answer.error_code
        if code != ErrorCode.UNKNOWN_SERVER_ERROR or not self._book.may_not_have_begun():
            self.check_sane(code, "heartbeat")
        if code in FENCED:
            self._abandon()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Over("another has its instance id")
        if code:
            raise Again(ErrorCode(code).name)
        self._said = says
        self._told_epoch(answer.member_epoch, began, cuts)
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            places = [(self._shared.ids[row.topic_id], number) for row in rows for number in row.partitions]
            self._told_target(places, began, cuts)

    async def _say_goodbye(self, *, for_good: bool) -> None:
        """Leave, where it is somebody perhaps for a while only. Raises: Over."""
        for_good = for_good or self._instance_id is None or self.world.rng.random() < 0.3
        epoch = LEAVING if for_good else LEAVING_FOR_A_WHILE
        self._book.gone(self.id)
        request = hb.ConsumerGroupHeartbeatRequest(self.group, self.id, epoch, self._instance_id)
        cuts = self.world.ledger.power_cuts
        with suppress(Again):
            code = (await self.coordinator(request, 1)).error_code
            self.check_sane(code, "goodbye")
            if not code:
                await self._commit_once_more(cuts)
        raise Over(f"left with {epoch}")
