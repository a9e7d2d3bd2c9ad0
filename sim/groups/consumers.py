"""Members of a consumer group of the new protocol (KIP-848), as Kafka's own client is one.

A member gives up what its assignment leaves out, says so, and takes what is new. What it has read it commits in its
epoch. It may be slow to give up; it may stand still until it is fenced, and come back in its old epoch; it may go for
a while and return under its instance id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat as hb
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from sim.clients import PAUSE_S, Again, Service, Unsure, read
from sim.groups.seats import Member, Over
from sim.history import Place

if TYPE_CHECKING:
    from sim.groups.ownership import Ownership
    from sim.world import World

REBALANCE_MS = 4_000
LEAVING, LEAVING_FOR_A_WHILE = -1, -2
SLOW_SHARE = 0.15
"""Of the times a member has to give something up; it may then take longer than it has."""
LONGEST_SLOW_S = 7.0
COMMITTED_SHARE = 0.7
BEATS_S = 0.5
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
ASSIGNORS = (None, None, "uniform", "range")


class Wants(NamedTuple):
    """What a member subscribes to."""

    names: tuple[str, ...]
    regex: str | None
    topics: tuple[str, ...]
    """All of it, as topics."""


class Reading(NamedTuple):
    """What the members of a group have in common."""

    group: str
    book: Ownership
    ids: Mapping[bytes, str]
    """Names of topics by id."""
    wants: tuple[Wants, ...]
    read: dict[Place, set[int]]
    """Offsets that a member has read."""


class ConsumerMember(Member):
    """One life of a member."""

    def __init__(self, world: World, name: str, service: Service, shared: Reading, instance_id: str | None) -> None:
        super().__init__(world, name, service, shared.group)
        self._shared = shared
        self._book = shared.book
        self._instance_id = instance_id
        self.id = f"{name}.{world.rng.randbytes(4).hex()}"
        self._identity = instance_id or self.id
        self.epoch = 0
        self.wants = world.rng.choice(shared.wants)
        self._assignor = world.rng.choice(ASSIGNORS)
        self._said: tuple[Wants, list[Place]] | None = None
        """What the coordinator has heard; None: it is told all."""
        self._target: set[Place] = set()
        self.positions: dict[Place, int] = {}
        """Of what it has; -1 where that is still to be asked for."""
        self._kept: dict[Place, int] = {}
        """What it has committed."""
        self._gives_up_at: float | None = None

    def change(self) -> None:
        """Subscribe to something else."""
        self.wants = self.world.rng.choice(self._shared.wants)

    def over(self) -> None:
        """Its process is gone."""
        self._book.gone(self.id)

    async def run(self) -> None:
        """Be a member until it has left."""
        while True:
            try:
                await self._beat()
                await self._reconcile()
                if self.leaving:
                    await self._leave()
                await self._consume()
            except Again as error:
                self.world.note(f"{self.name} {self.epoch}: {error}")
                self._said = None
                self.forget_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.world.rng.random()))
            await self.sleep(BEATS_S * (0.5 + self.world.rng.random()))

    # ------------------------------------------------------------------ membership

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
        """One heartbeat, and what its answer says.

        Raises:
            Again, Over.
        """
        wants, began, cuts = self.wants, self._book.now(), self.world.ledger.power_cuts
        asked = self._request()
        says = (wants, sorted(self.positions))
        answer = await self.coordinator(asked, 1)
        code = answer.error_code
        self.check_sane(code, "heartbeat")
        if code in FENCED:
            self._abandon()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Over("another has its instance id")
        if code:
            raise Again(ErrorCode(code).name)
        self._said = says
        if self.epoch:
            self._book.heard(self.id, began)
            if answer.member_epoch < self.epoch and cuts == self.world.ledger.power_cuts and not cuts:
                detail = f"{self.group}: {self.id} went from {self.epoch} to {answer.member_epoch}"
                self.world.ledger.violation("MemberEpochBack", detail)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self._target = {(self._shared.ids[row.topic_id], number) for row in rows for number in row.partitions}
            self._book.assigned(self.id, self._identity, self.epoch, sorted(self._target), began, cuts)
            self.world.note(f"{self.id} epoch {self.epoch}: {sorted(self._target)}")

    def _abandon(self) -> None:
        """It is no member, or none of now: it has nothing, and joins again."""
        self._book.gone(self.id)
        self.positions.clear()
        self._kept.clear()
        self._target = set()
        self._gives_up_at = None
        self.epoch, self._said = 0, None

    async def _reconcile(self) -> None:
        """Give up what is to go; once that is done take what is new. Raises: Again, Over."""
        going = [place for place in self.positions if place not in self._target]
        if going:
            if self._gives_up_at is None:
                slow = self.world.rng.random() < SLOW_SHARE and not self.calm
                self._gives_up_at = self.world.now_s() + (self.world.rng.random() * LONGEST_SLOW_S if slow else 0.0)
            if self.world.now_s() < self._gives_up_at:
                return
            for place in going:
                await self._commit(place)
            self._gives_up_at = None
            for place in going:
                self.positions.pop(place, None)
                self._kept.pop(place, None)
            self._book.gave_up(self.id, going)
        for place in sorted(self._target):
            if place not in self.positions:
                self.positions[place] = -1
                self._book.has(self.id, place)
        if self._said is not None and self._said[1] != sorted(self.positions):
            await self._beat()

    async def _leave(self) -> None:
        """Say goodbye, for good or for a while. Raises: Over."""
        for place in list(self.positions):
            await self._commit(place)
        epoch = LEAVING if self._instance_id is None or self.world.rng.random() < 0.3 else LEAVING_FOR_A_WHILE
        await self._say_goodbye(epoch)

    async def _say_goodbye(self, epoch: int) -> None:
        self._book.gone(self.id)
        try:
            answer = await self.coordinator(
                hb.ConsumerGroupHeartbeatRequest(self.group, self.id, epoch, self._instance_id), 1
            )
            self.check_sane(answer.error_code, "goodbye")
        except Again:
            pass
        raise Over(f"left with {epoch}")

    # ------------------------------------------------------------------ records and positions

    async def _consume(self) -> None:
        """Read some of what it has, and mostly commit it. Raises: Again, Over."""
        places = sorted(self.positions)
        for place in self.world.rng.sample(places, min(2, len(places))):
            if self.positions[place] < 0:
                await self._fetch_position(place)
            if self.positions[place] < 0:
                continue
            try:
                records = await read(self, place[1], self.positions[place], 50, place[0])
            except Again as error:
                if str(error) == ErrorCode.OFFSET_OUT_OF_RANGE.name:
                    self._begin_again(place)
                raise
            self._shared.read.setdefault(place, set()).update(x.offset for x in records)
            if records:
                self.positions[place] = records[-1].offset + 1
            if self.calm or self.world.rng.random() < COMMITTED_SHARE:
                await self._commit(place)

    def _begin_again(self, place: Place) -> None:
        """Its records are gone, in a power cut: what there is now is read from the start."""
        self.positions[place] = 0
        self.world.ledger.committed_to.pop(place, None)

    async def _fetch_position(self, place: Place) -> None:
        topic = of.OffsetFetchRequestTopics(place[0], partition_indexes=[place[1]])
        group = of.OffsetFetchRequestGroup(self.group, self.id, self.epoch, [topic])
        found = (await self.coordinator(of.OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
        code = found.error_code or (found.topics[0].partitions[0].error_code if found.topics else 0)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
            return  # the next heartbeat tells
        if code:
            raise Again(ErrorCode(code).name)
        at = max(found.topics[0].partitions[0].committed_offset, 0)
        self.world.ledger.position_read(place, at)
        self.positions[place] = self._kept[place] = at

    async def _commit(self, place: Place) -> None:
        """Have a position kept; where no answer comes nobody knows when it will be: who says no more cannot be late.

        Raises:
            Again, Over.
        """
        offset = self.positions.get(place, -1)
        if offset < 0 or self._kept.get(place) == offset:
            return
        ledger, began = self.world.ledger, self._book.now()
        cuts = ledger.power_cuts
        ledger.committing(place, offset)
        topic = oc.OffsetCommitRequestTopic(place[0], partitions=[oc.OffsetCommitRequestPartition(place[1], offset)])
        request = oc.OffsetCommitRequest(self.group, self.epoch, self.id, self._instance_id, topics=[topic])
        try:
            answer: Any = await self.coordinator(request, 9)
        except Unsure:
            self.forget_leaders()
            await self._say_goodbye(LEAVING)
            return
        code = answer.topics[0].partitions[0].error_code
        self.check_sane(code, "commit")
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
            return  # the next heartbeat tells
        if code:
            raise Again(ErrorCode(code).name)
        self._book.heard(self.id, began, place)
        self._kept[place] = offset
        ledger.committed(place, offset, cuts)
