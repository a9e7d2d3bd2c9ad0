"""Members that read what their group gives them alone: they give up what is to go, take what is new, and commit.

``CommitOfNobody``: a commit was taken of a member that had been told that it has left.

They may be slow to give up; they may stand still until they are fenced, and go on in their old epoch. What they have
read they commit in their epoch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from sim.clients import PAUSE_S, Again, Service, Unsure, log_start, read
from sim.groups.seats import Member
from sim.history import Place

if TYPE_CHECKING:
    from sim.groups.ownership import Ownership
    from sim.world import World

SLOW_SHARE = 0.15
"""Of the times a member has to give something up; it may then take longer than it has."""
LONGEST_SLOW_S = 7.0
COMMITTED_SHARE = 0.7
AHEAD_SHARE = 0.4
"""Of the turns, in which it first goes on with what it has: it may long be another's."""
BEATS_S = 0.5
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)

OF_ANOTHER_EPOCH = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class Reading(NamedTuple):
    """What the members of a group have in common."""

    group: str
    book: Ownership
    ids: Mapping[bytes, str]
    """Names of topics by id."""
    read: dict[Place, set[int]]
    """Offsets that a member has read."""


class ReadingMember(Member):
    """One life of a member."""

    commit_version = 9
    """Of OffsetCommit."""
    reads_in_its_epoch = True
    """Whether it asks for positions as the member it is."""

    def __init__(
        self, world: World, name: str, service: Service, shared: Reading, instance_id: str | None = None
    ) -> None:
        super().__init__(world, name, service, shared.group)
        self._shared = shared
        self._book = shared.book
        self._instance_id = instance_id
        self._identity = instance_id or self.id
        self.epoch = 0
        self._target: set[Place] = set()
        self.positions: dict[Place, int] = {}
        """Of what it has; -1 where that is still to be asked for."""
        self._kept: dict[Place, int] = {}
        """What it has committed."""
        self._gives_up_at: float | None = None

    def over(self) -> None:
        """Its process is gone."""
        self._book.gone(self.id)

    async def run(self) -> None:
        """Be a member until it has left."""
        while True:
            try:
                if self.epoch and self.world.rng.random() < AHEAD_SHARE:
                    await self._consume()
                await self._beat()
                await self._reconcile()
                if self.leaving:
                    for place in list(self.positions):
                        await self._commit(place)
                    await self._say_goodbye(for_good=False)
                await self._consume()
            except Again as error:
                self.world.note(f"{self.name} {self.epoch}: {error}")
                self._nothing_said()
                self.forget_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.world.rng.random()))
            await self.sleep(BEATS_S * (0.5 + self.world.rng.random()))

    # ------------------------------------------------------------------ membership

    @abstractmethod
    async def _beat(self) -> None:
        """One heartbeat, and what its answer says. Raises: Again, Over."""

    @abstractmethod
    def _nothing_said(self) -> None:
        """Something went wrong: the coordinator is told all once more."""

    @abstractmethod
    def _has_said(self) -> bool:
        """Whether the coordinator knows what it has."""

    @abstractmethod
    async def _say_goodbye(self, *, for_good: bool) -> None:
        """Leave, whether or not that is heard. Raises: Over."""

    def _told_epoch(self, epoch: int, began: int, cuts: int) -> None:
        """A heartbeat that began then was answered."""
        if self.epoch:
            self._book.heard(self.id, began)
            if epoch < self.epoch and cuts == self.world.ledger.power_cuts and not cuts:
                detail = f"{self.group}: {self.id} went from {self.epoch} to {epoch}"
                self.world.ledger.violation("MemberEpochBack", detail)
        self.epoch = epoch
        self.heard_s = self.world.now_s()

    def _told_target(self, target: Collection[Place], began: int, cuts: int) -> None:
        """It was told what it is to have."""
        self._target = set(target)
        self._book.assigned(self.id, self._identity, self.epoch, sorted(target), began, cuts)
        self.world.note(f"{self.id} epoch {self.epoch}: {sorted(target)}")

    def _abandon(self) -> None:
        """It is no member, or none of now: it has nothing, and joins again."""
        self._book.gone(self.id)
        self.positions.clear()
        self._kept.clear()
        self._target = set()
        self._gives_up_at = None
        self.epoch = 0
        self._nothing_said()

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
        if self.epoch and not self._has_said():
            await self._beat()

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
                    await self._begin_again(place)
                raise
            self._shared.read.setdefault(place, set()).update(x.offset for x in records)
            if records:
                self.positions[place] = records[-1].offset + 1
            if self.calm or self.world.rng.random() < COMMITTED_SHARE:
                await self._commit(place)

    async def _begin_again(self, place: Place) -> None:
        """Its records are gone, in a power cut: what there is now is read from the start. Raises: Again."""
        self.positions[place] = await log_start(self, *place)
        self.world.ledger.committed_to.pop(place, None)

    async def _fetch_position(self, place: Place) -> None:
        topic = of.OffsetFetchRequestTopics(place[0], partition_indexes=[place[1]])
        group = of.OffsetFetchRequestGroup(self.group, topics=[topic])
        if self.reads_in_its_epoch:
            group.member_id, group.member_epoch = self.id, self.epoch
        asked_at = self.world.ledger.committed_to.get(place, 0)
        found = (await self.coordinator(of.OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
        code = found.error_code or (found.topics[0].partitions[0].error_code if found.topics else 0)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
            return  # the next heartbeat tells
        if code:
            raise Again(ErrorCode(code).name)
        row = found.topics[0].partitions[0]
        at = max(row.committed_offset, 0)
        self.goes_on_from(*place, row.committed_leader_epoch)
        self.world.ledger.position_read(place, at, asked_at)
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
        try:
            code = await self._have_kept(place, offset)
        except Unsure:
            self.forget_leaders()
            await self._say_goodbye(for_good=True)
            return
        self.check_sane(code, "commit")
        if code in OF_ANOTHER_EPOCH:
            return  # the next heartbeat tells
        if code:
            raise Again(ErrorCode(code).name)
        self._book.heard(self.id, began, place)
        self._kept[place] = offset
        ledger.committed(place, offset, cuts)

    async def _have_kept(self, place: Place, offset: int) -> int:
        """Commit; gives the code of the answer. Raises: Again."""
        self.world.ledger.committing(place, offset)
        row = oc.OffsetCommitRequestPartition(place[1], offset, self.leader_epoch(*place))
        topic = oc.OffsetCommitRequestTopic(place[0], partitions=[row])
        request = oc.OffsetCommitRequest(self.group, self.epoch, self.id, self._instance_id, topics=[topic])
        answer: Any = await self.coordinator(request, self.commit_version)
        return int(answer.topics[0].partitions[0].error_code)

    async def _commit_once_more(self, cuts: int) -> None:
        """It was told that it has left, and a commit of its comes late: that is nobody's. Raises: Again.

        ``cuts``: power cuts before it said goodbye.
        """
        for place in [place for place, offset in self.positions.items() if offset >= 0][:1]:
            code = await self._have_kept(place, self.positions[place])
            if not code and cuts == self.world.ledger.power_cuts:
                detail = f"{self.group}: {place[0]}-{place[1]} by {self.id} in {self.epoch}, after it had left"
                self.world.ledger.violation("CommitOfNobody", detail)
