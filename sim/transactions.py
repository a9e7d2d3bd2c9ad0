"""The workload: producers whose batches count together or not at all, and copiers that read, write and commit at once.

A client speaks version 1 of the protocol, or version 2 (KIP-890). It gives up on nothing before it is told: a request
without an answer is sent again over a new connection, and the old one may arrive yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.wire import records as r
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_offsets_to_txn as ao
from ottla.wire.messages import add_partitions_to_txn as ap
from ottla.wire.messages import end_txn as et
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import init_producer_id as ip
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import produce
from ottla.wire.messages import txn_offset_commit as tc
from sim.clients import Address, Again, Service, SimClient, Unsure
from sim.committed import TRANSACTIONAL_BIT, fetch_from
from sim.coordinators import is_agreed
from sim.history import Outcome, Place, Send

if TYPE_CHECKING:
    from sim.world import World

TRANSACTION_MS = 8_000
GIVE_UP_S = 5.0
"""After so long a client ends a transaction that it cannot fill."""
COPY_GROUP = "copy"
SOURCE = "x"
TARGET = ("y", 0)
COMMITTED_SHARE = 0.65
"""Of a producer's transactions; it aborts the rest."""
LEFT_SHARE = 0.03
"""Of a producer's transactions, which nobody ends."""
MOST_COPIED = 5
RELIEVED_SHARE = 0.03
"""Of the transactions of a copier, after which another takes over."""
GROUP_KIND, TRANSACTION_KIND = 0, 1
LATEST_S = 30.0
"""So long after it was asked something may still come."""
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
BROKEN = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


Start = Callable[[Callable[[], Awaitable[None]]], None]


class Fenced(Exception):
    """Another one has the transactional id, or the transaction was ended for its time."""


class Broken(Exception):
    """The transaction cannot be committed any more."""


def check(code: int, what: str) -> None:
    """Raise what an answer means to a transaction; nothing where it is good.

    Raises:
        Fenced, Broken, Again.
    """
    if code in FENCED:
        raise Fenced(f"{what}: {ErrorCode(code).name}")
    if code in BROKEN:
        raise Broken(f"{what}: {ErrorCode(code).name}")
    if code:
        raise Again(f"{what}: {ErrorCode(code).name}")


class Transactional(SimClient):
    """A client with a transactional id: one transaction after the other."""

    def __init__(self, world: World, name: str, transactional_id: str, service: Service, version: int) -> None:
        super().__init__(world, name, service)
        self._id = transactional_id
        self._version = version
        self.pid, self.epoch = -1, -1
        self._sequences: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._added: dict[Place, None] = {}
        """Partitions of the transaction under way that the coordinator knows of."""
        self._wrote = False
        """Whether anything of it was taken by a leader."""
        self._began_s = 0.0
        self._lost_init_s = -LATEST_S
        """When it last asked for its id and heard nothing."""

    # ------------------------------------------------------------------ whom to ask

    async def _at(self, kind: int, key: str) -> Address:
        known = self._coordinators.get((kind, key))
        if known is None:
            answer = await self.call(fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            found = answer.coordinators[0]
            if found.error_code:
                raise Again(ErrorCode(found.error_code).name)
            known = self._coordinators[kind, key] = (found.host, found.port)
        return known

    def forget_leaders(self) -> None:
        """Coordinators, too, are asked for again."""
        super().forget_leaders()
        self._coordinators.clear()

    async def _told(self, request: Any, version: int, kind: int = TRANSACTION_KIND, key: str = "") -> Any:
        return await self.call(request, version, await self._at(kind, key or self._id))

    # ------------------------------------------------------------------ a transaction

    async def init(self) -> None:
        """Take the transactional id over: whoever had it is fenced, and what it had begun is ended."""

        async def once() -> None:
            try:
                answer = await self._told(ip.InitProducerIdRequest(self._id, TRANSACTION_MS), 4)
            except Unsure:
                self._lost_init_s = self.world.now_s()
                raise
            if answer.error_code:
                raise Again(ErrorCode(answer.error_code).name)
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch

        await self.until_done(once)
        self._sequences = {}
        self.world.note(f"{self.name} has producer {self.pid} epoch {self.epoch}")

    async def write(self, place: Place, values: list[int]) -> int:
        """One batch of the transaction, until it is taken; where it lies.

        Raises:
            Fenced, Broken.
        """

        async def once() -> int:
            if self._version < 2 and place not in self._added:
                await self._add(place)
            return await self._produce(place, values)

        offset: int = await self.until_done(once)
        self._sequences[place] = self._sequences.get(place, 0) + len(values)
        self._wrote = True
        return offset

    async def _add(self, place: Place) -> None:
        topics = [ap.AddPartitionsToTxnTopic(place[0], [place[1]])]
        answer = await self._told(ap.AddPartitionsToTxnRequest([], self._id, self.pid, self.epoch, topics), 3)
        check(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, "add")
        self._added[place] = None

    async def _produce(self, place: Place, values: list[int]) -> int:
        topic, partition = place
        now = self.process.env.now_ms()
        raw = r.build_batch(
            [r.NewRecord(self.name.encode(), self.service.pack(place, v), now) for v in values],
            attributes=TRANSACTIONAL_BIT,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(place, 0),
        )
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, raw)])
        request = produce.ProduceRequest(self._id, -1, 5000, [data])
        answer = await self.call(request, 12 if self._version >= 2 else 11, await self.leader(topic, partition))
        row = answer.responses[0].partition_responses[0]
        check(row.error_code, "produce")
        return int(row.base_offset)

    async def end(self, *, commit: bool) -> None:
        """Ask for the end until it is told.

        Raises:
            Fenced, Broken.
        """

        async def once() -> None:
            request = et.EndTxnRequest(self._id, self.pid, self.epoch, commit)
            answer = await self._told(request, 5 if self._version >= 2 else 3)
            refused = answer.error_code == ErrorCode.INVALID_TXN_STATE and self._wrote and not self._may_be_over()
            if refused and await is_agreed(self, self._id, self._coordinators.get((TRANSACTION_KIND, self._id))):
                told = f"{self.name}: epoch {self.epoch}, commit {commit}"
                self.world.ledger.violation("txn-refused", told)
            check(answer.error_code, "end")
            if self._version >= 2:
                self.pid, self.epoch, self._sequences = answer.producer_id, answer.producer_epoch, {}

        await self.until_done(once)

    def _may_be_over(self) -> bool:
        """Whether the coordinator may have ended the transaction: for its time, by its own clock, or as its producer's
        own question for its id came late, and fenced it.
        """
        if self.world.now_s() < self._lost_init_s + LATEST_S:
            return True
        clocks_are_right = all(host.clock.offset_ms == 0 for host in self.world.hosts.values())
        return not clocks_are_right or self.world.now_s() - self._began_s > TRANSACTION_MS / 1000 * 0.9

    async def transact(self, body: Callable[[], Awaitable[None]], *, commit: bool, asks: Callable[[], None]) -> Outcome:
        """One transaction from its beginning to its end; ``asks`` is called before the commit is asked for.

        Whoever is fenced, or had to give up, begins with `init` again.
        """
        self._added, self._wrote, self._began_s = {}, False, self.world.now_s()
        done = False
        try:
            with self.process.env.timeout(GIVE_UP_S):
                await body()
                done = True
        except Fenced:
            self.pid = -1
            return Outcome.FAIL
        except Broken:
            pass
        commit = commit and done
        if commit:
            asks()
        try:
            await self.end(commit=commit)
        except (Fenced, Broken):
            self.pid = -1
            return Outcome.INFO if commit else Outcome.FAIL
        if not done:
            self.pid = -1
        return Outcome.OK if commit else Outcome.FAIL


class TxnProducer(Transactional):
    """Writes numbered records to several partitions in one transaction; some it aborts."""

    def __init__(self, world: World, name: str, first: int, service: Service, version: int) -> None:
        super().__init__(world, name, name, service, version)
        self._next = first
        self._ids = 0

    async def run(self) -> None:
        """Until the world says that it is enough."""
        while not self.world.draining:
            if self.pid < 0:
                await self.init()
            await self._one()
            await self.sleep(self.world.rng.random() * 0.4)
        self.drop()

    async def _one(self) -> None:
        rng, history, now_s = self.world.rng, self.world.history, self.world.now_s
        number = history.begin(self.name, "txn", now_s=now_s())
        sent: list[Send] = []

        async def body() -> None:
            for _ in range(1 + int(rng.random() * 3)):
                place = (SOURCE, int(rng.random() * self.service.partitions))
                values = list(range(self._next, self._next + 1 + int(rng.random() * 3)))
                self._next += len(values)
                history.sends(number, [Send(place, v) for v in values])
                sent.extend(Send(place, v) for v in values)
                offset = await self.write(place, values)
                sent[-len(values) :] = [Send(place, v, offset + index) for index, v in enumerate(values)]
                await self.sleep(rng.random() * 0.4)

        if rng.random() < LEFT_SHARE:
            outcome = await self._leave(body)
        else:
            commit = rng.random() < COMMITTED_SHARE
            outcome = await self.transact(body, commit=commit, asks=lambda: history.asks(number))
        self.world.note(f"{self.name} epoch {self.epoch} {outcome.value} {[(x.place[1], x.value) for x in sent]}")
        history.end(number, outcome, now_s(), sent)

    async def _leave(self, body: Callable[[], Awaitable[None]]) -> Outcome:
        """Write, and never come back: the coordinator ends it when its time is over."""
        self._added, self._wrote = {}, False
        with suppress(Fenced, Broken), self.process.env.timeout(GIVE_UP_S):
            await body()
        self._ids += 1
        self._id, self.pid = f"{self.name}.{self._ids}", -1
        return Outcome.FAIL


class Copier(Transactional):
    """Copies one partition, a few records a transaction, with the position it has reached. Now and then another
    process takes its transactional id over, and this one goes on until it is told.
    """

    def __init__(
        self, world: World, number: int, service: Service, version: int, start: Start | None = None, life: int = 0
    ) -> None:
        """``start``: how the process begins that takes over; without it nobody does."""
        super().__init__(world, f"copier-{number}.{life}", f"copier-{number}", service, version)
        self._number, self._life = number, life
        self._start = start
        self._place: Place = (SOURCE, number)
        self._relieved = False

    async def run(self) -> None:
        """Until the world says that it is enough."""
        while not self.world.draining:
            if self.pid < 0:
                if self._relieved:
                    break
                await self.init()
                position = await self.until_done(self.position)
            try:
                seen = await fetch_from(self, self._place, position, 100, committed=True)
            except Again:
                self.forget_leaders()
                continue
            if seen.records:
                position = await self._copy(position, seen.records[:MOST_COPIED])
            else:
                position = max(position, seen.next_offset)
            await self.sleep(self.world.rng.random() * 0.3)
            if self._start is not None and not self._relieved and self.world.rng.random() < RELIEVED_SHARE:
                self._relieved = True
                heir = Copier(self.world, self._number, self.service, self._version, self._start, self._life + 1)
                heir._lost_init_s = self._lost_init_s  # it may be fenced by what this one asked
                self._start(heir.run)
        self.drop()

    def _may_be_over(self) -> bool:
        """Who takes over has the transaction ended, too."""
        return self._relieved or super()._may_be_over()

    async def _copy(self, position: int, records: list[tuple[int, int | None]]) -> int:
        """One transaction; the position behind it, or where it was."""
        values = [value for _, value in records if value is not None]
        end = records[-1][0] + 1

        async def body() -> None:
            await self.write(TARGET, values)
            await self._positions(end)
            with suppress(Again):
                code, stored = await self._row()
                if not code and not self._may_be_over():
                    told = f"{self.name} epoch {self.epoch} is told {stored} while {end} is not decided"
                    self.world.ledger.violation("undecided-read", told)

        outcome = await self.transact(body, commit=self.world.rng.random() < 0.9, asks=lambda: None)
        self.world.note(f"{self.name} epoch {self.epoch} {outcome.value} {values}")
        if outcome is Outcome.INFO:
            self.pid = -1
        return end if outcome is Outcome.OK else position

    async def _positions(self, offset: int) -> None:
        """Have the position committed with the transaction.

        Raises:
            Fenced, Broken.
        """
        added = self._version >= 2

        async def once() -> None:
            nonlocal added
            if not added:
                answer = await self._told(ao.AddOffsetsToTxnRequest(self._id, self.pid, self.epoch, COPY_GROUP), 3)
                check(answer.error_code, "add offsets")
                added = True
            part = tc.TxnOffsetCommitRequestPartition(self._place[1], offset, self.leader_epoch(*self._place))
            topic = tc.TxnOffsetCommitRequestTopic(self._place[0], [part])
            request = tc.TxnOffsetCommitRequest(self._id, COPY_GROUP, self.pid, self.epoch, topics=[topic])
            answer = await self._told(request, 5 if self._version >= 2 else 3, GROUP_KIND, COPY_GROUP)
            check(answer.topics[0].partitions[0].error_code, "positions")

        await self.until_done(once)

    async def position(self) -> int:
        """How far the partition is copied; waits for what is not decided.

        Raises:
            Again: no answer, or not yet.
        """
        code, stored = await self._row()
        if code:
            raise Again(ErrorCode(code).name)
        return max(stored, 0)

    async def _row(self) -> tuple[int, int]:
        """What is answered to who wants a position that is decided: an error, or the position; -1 for none.

        Raises:
            Again: no answer.
        """
        topic = of.OffsetFetchRequestTopic(SOURCE, [self._place[1]])
        request = of.OffsetFetchRequest(COPY_GROUP, [topic], require_stable=True)
        answer = await self._told(request, 7, GROUP_KIND, COPY_GROUP)
        rows = answer.topics[0].partitions if answer.topics else []
        code = answer.error_code or (rows[0].error_code if rows else 0)
        if rows:
            self.goes_on_from(*self._place, rows[0].committed_leader_epoch)
        return code, rows[0].committed_offset if rows else -1
