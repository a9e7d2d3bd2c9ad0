"""How the partitions of a transaction hear of its end: one request at a time to each of their leaders, until all know.

A leader that moves is looked for again, one that does not answer is asked again, for as long as this node coordinates
the transaction. Partitions that are no more need not know.

Source: ``TransactionMarkerChannelManager.scala``, ``TransactionMarkerRequestCompletionHandler.scala``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import trio

from ottla.broker.coordinator.patience import while_there
from ottla.broker.txn.events import Marked, MarkersDue
from ottla.broker.txn.state import S, TopicPartition
from ottla.controller.image import MetadataImage
from ottla.peers.access import Access
from ottla.peers.client import Standing
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.world.env import Env

logger = logging.getLogger("ottla.txn")
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
PARTITIONS_AT_ONCE = 2_000
"""So many partitions go into one request at most, and what is more waits for its answer; so many leaders are looked
up at once.
"""
LETTERS_A_TURN = 100
"""Whose transaction has moved away is looked for among all of this node's: some 20 us each."""
DONE = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition knows, or can never have taken a record of the transaction."""
AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
NEVER = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Somebody newer has spoken: the transaction stays as it is until its coordinator is another."""

Send = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class Letter(NamedTuple):
    """Partitions that are to hear of one transaction, and how often it was tried in vain."""

    due: MarkersDue
    partitions: tuple[TopicPartition, ...]
    tries: int = 0


class Around(NamedTuple):
    """What the sender sees of its node."""

    node_id: int
    image: Callable[[], MetadataImage]
    address: Callable[[int], tuple[str, int] | None]
    """Where a broker listens for brokers; None where nobody knows."""
    here: Send
    """Writes markers into partitions that are led from this node."""
    timeout_s: float
    """``request.timeout.ms``: for one answer."""
    access: Callable[[], Access | None] = lambda: None
    """What the listener brokers reach each other at wants."""


class Markers:
    """Queues of what is to be told, one for each leader."""

    def __init__(
        self,
        env: Env,
        around: Around,
        epoch_of: Callable[[MarkersDue], int | None],
        marked: Callable[[Marked], None],
    ) -> None:
        """``epoch_of``: the epoch this node coordinates a transaction under; None where it does not any more."""
        self._env = env
        self._around = around
        self._epoch_of = epoch_of
        self._marked = marked
        self._inbox: deque[Letter] = deque()
        self._queues: dict[int, deque[Letter]] = {}
        """By leader; there is one as long as somebody works it off."""
        self._lines: dict[int, Standing] = {}
        self._wanted = trio.Event()

    def give(self, due: MarkersDue) -> None:
        """All that are to be told of a transaction are to be told now."""
        self._post(Letter(due, tuple(sorted(due.pending.remaining))))

    def _post(self, letter: Letter) -> None:
        all_of_them = letter.partitions
        for first in range(0, len(all_of_them), PARTITIONS_AT_ONCE):
            self._inbox.append(letter._replace(partitions=all_of_them[first : first + PARTITIONS_AT_ONCE]))
        self._wanted.set()

    async def run(self) -> None:
        """Tell them, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    while self._inbox:
                        self._sort(self._inbox.popleft(), nursery)
                        await trio.lowlevel.checkpoint()
                    self._wanted = trio.Event()
                    await self._wanted.wait()
        finally:
            self._queues.clear()
            for line in self._lines.values():
                line.close()
            self._lines.clear()

    # ------------------------------------------------------------------ who leads

    def _sort(self, letter: Letter, nursery: trio.Nursery) -> None:
        """Give each partition to its leader's queue."""
        if self._epoch_of(letter.due) is None:
            return
        gone, nowhere = [], []
        by_leader: dict[int, list[TopicPartition]] = {}
        image = self._around.image()
        for at in letter.partitions:
            topic = image.topics.get(at[0])
            told = None if topic is None else topic.partitions.get(at[1])
            if told is None:
                gone.append(at)
            elif told.leader == self._around.node_id or self._around.address(told.leader) is not None:
                by_leader.setdefault(told.leader, []).append(at)
            else:
                nowhere.append(at)
        for leader, partitions in by_leader.items():
            self._queue(leader, letter._replace(partitions=tuple(partitions)), nursery)
        if nowhere:
            nursery.start_soon(self._later, letter, nowhere)
        if gone:
            logger.info("%s: %s are no more and need no marker", letter.due.transactional_id, gone)
            self._marked(Marked(letter.due.transactional_id, letter.due.pending, tuple(gone)))

    def _queue(self, leader: int, letter: Letter, nursery: trio.Nursery) -> None:
        queue = self._queues.get(leader)
        if queue is None:
            self._queues[leader] = deque([letter])
            nursery.start_soon(self._work_off, leader, nursery)
        else:
            queue.append(letter)

    async def _later(self, letter: Letter, partitions: Iterable[TopicPartition]) -> None:
        """Look for the leaders of these again, each time after a longer pause."""
        await self._env.sleep(min(FIRST_PAUSE_S * 2 ** min(letter.tries, 16), LONGEST_PAUSE_S))
        self._post(Letter(letter.due, tuple(partitions), letter.tries + 1))

    # ------------------------------------------------------------------ what is said

    async def _work_off(self, leader: int, nursery: trio.Nursery) -> None:
        """Tell a leader what is queued for it, one request after the other."""
        queue = self._queues[leader]
        while queue:
            letters, count = [], 0
            while queue and count + len(queue[0].partitions) <= PARTITIONS_AT_ONCE:
                letters.append(queue.popleft())
                count += len(letters[-1].partitions)
            request = await self._request(letters)
            if not request.markers:
                continue
            try:
                answer: WriteTxnMarkersResponse | None = await self._ask(leader, request)
            except (OSError, WireError) as error:
                logger.info("markers for broker %d: %s", leader, error)
                answer = None
            await self._take(letters, answer, nursery)
        del self._queues[leader]

    async def _request(self, letters: list[Letter]) -> WriteTxnMarkersRequest:
        """One marker for each transaction that is still to end."""
        markers: dict[int, WritableTxnMarker] = {}
        for number, (due, partitions, _) in enumerate(letters, 1):
            if not number % LETTERS_A_TURN:
                await trio.lowlevel.checkpoint()
            epoch = self._epoch_of(due)
            if epoch is None:
                continue
            txn = due.pending.before
            marker = markers.get(id(due.pending))
            if marker is None:
                marker = markers[id(due.pending)] = WritableTxnMarker(
                    txn.producer_id,
                    txn.producer_epoch,
                    txn.state is S.PREPARE_COMMIT,
                    coordinator_epoch=epoch,
                    transaction_version=txn.client_version,
                )
            topics = {topic.name: topic for topic in marker.topics}
            for name, index in partitions:
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = WritableTxnMarkerTopic(name)
                    marker.topics.append(topic)
                topic.partition_indexes.append(index)
        return WriteTxnMarkersRequest(list(markers.values()))

    async def _ask(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """The leader's answer.

        Raises:
            OSError, WireError: there is none.
        """
        if leader == self._around.node_id:
            return await self._around.here(request)
        line = self._lines.get(leader)
        if line is None:
            client_id = f"broker-{self._around.node_id}-txn-marker-sender"
            line = self._lines[leader] = Standing(
                self._env, client_id, self._around.timeout_s, access=self._around.access()
            )
        address = self._around.address(leader)

        async def call() -> WriteTxnMarkersResponse:
            answer: WriteTxnMarkersResponse = await (await line.to(address, f"broker {leader}")).call(request)
            return answer

        return await while_there(self._env, lambda: self._around.address(leader) == address, call)

    async def _take(self, letters: list[Letter], answer: WriteTxnMarkersResponse | None, nursery: trio.Nursery) -> None:
        """What became of it; a row that is missing is no answer."""
        codes: dict[tuple[int, str, int], int] = {}
        for marker in () if answer is None else answer.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    codes[marker.producer_id, topic.name, row.partition_index] = row.error_code
        for number, letter in enumerate(letters, 1):
            if not number % LETTERS_A_TURN:
                await trio.lowlevel.checkpoint()
            producer_id = letter.due.pending.before.producer_id
            done, again = [], []
            for at in letter.partitions:
                code = codes.get((producer_id, *at))
                if code in DONE:
                    done.append(at)
                elif code in NEVER:
                    logger.warning("%s: no marker for %s-%d: error %d", letter.due.transactional_id, *at, code)
                else:
                    if code is not None and code not in AGAIN:
                        logger.error("%s: no marker for %s-%d yet: error %d", letter.due.transactional_id, *at, code)
                    again.append(at)
            if again:
                nursery.start_soon(self._later, letter, again)
            if done:
                self._marked(Marked(letter.due.transactional_id, letter.due.pending, tuple(done)))
