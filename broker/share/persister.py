"""Where the leader of a share partition keeps its state: the share coordinator, here or at another broker.

Each call is one share partition. Where the coordinator is on its way, or cannot be reached, it is looked for again: up
to five times, after 1, 2, 4, 8 and 16 seconds. What is asked again about a share partition is not overtaken, and what
was overtaken is not asked again: it would bring back an older start, and records before it that are long done.

Source: ``DefaultStatePersister.java``, ``PersisterStateManager.java`` (apache/kafka 4.3.1), KIP-932.
Deviations: the coordinator is found in the metadata, which every broker has, and not asked for. Kafka's calls overtake
one another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.metadata.admin import SHARE_TOPIC as TOPIC
from ottla.broker.share import machine as m
from ottla.broker.share.batches import StateBatch
from ottla.broker.share.coordinator import ShareCoordinator
from ottla.broker.share.lines import Around, Lines
from ottla.broker.share.state import UNINITIALIZED, SharePartitionKey, ShareState
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import delete_share_group_state as ds
from ottla.wire.messages import initialize_share_group_state as it
from ottla.wire.messages import read_share_group_state as rd
from ottla.wire.messages import read_share_group_state_summary as rs
from ottla.wire.messages import write_share_group_state as wr
from ottla.wire.schema import Message

TRIES = 6
FIRST_RETRY_S = 1.0
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class _Call:
    """One on its way."""

    __slots__ = ("before", "began", "holds", "over", "tries", "was_overtaken")

    def __init__(self, before: list[_Call]) -> None:
        self.before = before
        """Those about the same share partition that are on their way already, oldest first."""
        self.began = trio.Event()
        """It was asked for the first time: those that come later may be."""
        self.tries = 0
        """How often it was asked in vain, or is taken to have been."""
        self.holds = False
        """Whether those that came later wait for it: it is asked again, or waits for such a one."""
        self.was_overtaken = False
        """Whether one that began later has been answered."""
        self.over = trio.Event()


class Persister:
    """Reads and writes the states of share partitions."""

    def __init__(self, around: Around, coordinator: ShareCoordinator) -> None:
        self._around = around
        self._coordinator = coordinator
        self._lines = Lines(around, "share-persister")
        self.close = self._lines.close
        self._calls: dict[SharePartitionKey, list[_Call]] = {}
        """On their way, oldest first."""

    async def initialize(self, at: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin a share partition. Raises: ProtocolError."""
        request = it.InitializeShareGroupStateRequest(
            at.group_id,
            [it.InitializeStateData(at.topic_id, [it.PartitionData(at.partition, state_epoch, start_offset)])],
        )
        await self._ask(at, lambda ticket: m.Initialize(ticket, at, state_epoch, start_offset), request)

    def read(self, at: SharePartitionKey, leader_epoch: int) -> Awaitable[ShareState]:
        """What is remembered; older leaders are fenced from now on. Its place is behind what was called for before.

        Raises (awaited): ProtocolError.
        """
        return self._read(self._turn(at), at, leader_epoch)

    async def _read(self, own: _Call, at: SharePartitionKey, leader_epoch: int) -> ShareState:
        request = rd.ReadShareGroupStateRequest(
            at.group_id, [rd.ReadStateData(at.topic_id, [rd.PartitionData(at.partition, leader_epoch)])]
        )
        answer = await self._ask(at, lambda ticket: m.Read(ticket, at, leader_epoch), request, own)
        if isinstance(answer, ShareState):
            return answer
        rows = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in answer.state_batches
        )
        return ShareState(0, answer.state_epoch, leader_epoch, answer.start_offset, UNINITIALIZED, rows)

    def write(
        self,
        at: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: tuple[StateBatch, ...],
    ) -> Awaitable[None]:
        """Keep what became of some records. Its place is behind what was called for before.

        Raises (awaited): ProtocolError.
        """
        stored = [wr.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches]
        row = wr.PartitionData(at.partition, state_epoch, leader_epoch, start_offset, delivery_complete_count, stored)
        request = wr.WriteShareGroupStateRequest(at.group_id, [wr.WriteStateData(at.topic_id, [row])])
        said = (at, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
        return self._ask(at, lambda ticket: m.Write(ticket, *said), request, self._turn(at))

    async def delete(self, at: SharePartitionKey) -> None:
        """Forget a share partition. Raises: ProtocolError."""
        request = ds.DeleteShareGroupStateRequest(
            at.group_id, [ds.DeleteStateData(at.topic_id, [ds.PartitionData(at.partition)])]
        )
        await self._ask(at, lambda ticket: m.Delete(ticket, at), request)

    async def summary(self, at: SharePartitionKey) -> tuple[int, int, int]:
        """Start offset and how many records behind it are final, -1 where nothing is known; and the leader epoch.

        Raises:
            ProtocolError: nobody says.
        """
        request = rs.ReadShareGroupStateSummaryRequest(
            at.group_id, [rs.ReadStateSummaryData(at.topic_id, [rs.PartitionData(at.partition, -1)])]
        )
        answer = await self._until_answered(at, lambda ticket: m.Summary(ticket, at), request, _Call([]))
        return answer.start_offset, answer.delivery_complete_count, answer.leader_epoch

    # ------------------------------------------------------------------ the way there

    def _turn(self, at: SharePartitionKey) -> _Call:
        """A place behind all that was called for about a share partition, whoever runs first."""
        calls = self._calls.setdefault(at, [])
        own = _Call(list(calls))
        calls.append(own)
        return own

    async def _ask(
        self, at: SharePartitionKey, event_of: Callable[[Ticket], Any], request: Message, own: _Call | None = None
    ) -> Any:
        """Ask until somebody answers for it; calls about one share partition in their order. Raises: ProtocolError."""
        own = own or self._turn(at)
        calls = self._calls[at]
        try:
            if own.before and not own.before[-1].began.is_set():
                await own.before[-1].began.wait()
            answer = await self._until_answered(at, event_of, request, own)
            for older in own.before:
                older.was_overtaken = True
            own.tries = 0
            return answer
        finally:
            own.began.set()
            own.over.set()
            own.before = []
            calls.remove(own)
            if not calls:
                del self._calls[at]

    async def _until_answered(
        self,
        at: SharePartitionKey,
        event_of: Callable[[Ticket], Any],
        request: Message,
        own: _Call,
    ) -> Any:
        before, failure = own.before, ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        while own.tries < TRIES:
            if own.holds or any(older.holds for older in before):
                own.holds = True
                for older in before:
                    await older.over.wait()
                    own.tries = max(own.tries, older.tries - 1)  # nobody waits for each of those that fail before him
            if own.was_overtaken:
                break
            own.tries += 1
            own.began.set()
            try:
                return await self._once(at, event_of, request)
            except (OSError, WireError) as error:
                failure = ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error))
            except ProtocolError as error:
                if error.code not in _PASSING:
                    raise
                failure = error
            own.holds = True
            if own.tries < TRIES:
                await self._around.env.sleep(FIRST_RETRY_S * 2 ** (own.tries - 1))
        raise failure.with_traceback(None)

    async def _once(self, at: SharePartitionKey, event_of: Callable[[Ticket], Any], request: Message) -> Any:
        topic = self._around.image().topics.get(TOPIC)
        if topic is None:
            self._around.create_state_topic()
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[self._coordinator.partition_for(at)].leader
        if leader == self._around.node_id:
            answer = await self._coordinator.ask(at, event_of).wait()
            if isinstance(answer, ProtocolError):
                raise answer.with_traceback(None)
            return answer
        return await self._elsewhere(leader, request)

    async def _elsewhere(self, broker_id: int, request: Any) -> Any:
        answer = await self._lines.call(broker_id, request)
        row = next((row for topic in answer.results for row in topic.partitions), None)
        if row is None:
            raise WireError(f"broker {broker_id} says nothing of what it was asked")
        if row.error_code:
            raise ProtocolError(ErrorCode(row.error_code), row.error_message)
        return row
