"""Sender of transaction markers: one request at a time to each partition leader, until all are written.

A moved leader is looked up again, a failed request is repeated, as long as this node coordinates the transaction.
Deleted partitions are skipped.

Source: ``TransactionMarkerChannelManager.scala``, ``TransactionMarkerRequestCompletionHandler.scala`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import trio

from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.transactions.events import MarkersRequested, MarkersWritten
from ottla.broker.transactions.transaction_metadata import S, TopicPartition
from ottla.client.connection_security import ConnectionSecurity
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger("ottla.txn")
MIN_RETRY_BACKOFF_S = 0.02
MAX_RETRY_BACKOFF_S = 1.0
MAX_PARTITIONS_PER_REQUEST = 2_000
"""So many partitions go into one request at most, and what is more waits for its answer; so many leaders are looked
up at once.
"""
MAX_BATCHES_PER_SLICE = 100
"""Maximum number of batches per time slice: a lookup of moved transactions costs about 20 us each."""
FINAL_ERRORS = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition knows, or can never have taken a record of the transaction."""
RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
FENCED_ERRORS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Errors by a newer coordinator: this one stops sending."""

SendMarkers = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class MarkerBatch(NamedTuple):
    """Partitions without the marker of one transaction, and the number of failed attempts."""

    markers: MarkersRequested
    partitions: tuple[TopicPartition, ...]
    attempts: int = 0


class MarkerSenderDependencies(NamedTuple):
    """Dependencies of the sender on its node."""

    node_id: int
    image: Callable[[], MetadataImage]
    address: Callable[[int], tuple[str, int] | None]
    """Function that returns a broker's inter-broker address; None if unknown."""
    write_local: SendMarkers
    """Writes markers into partitions that are led from this node."""
    timeout_s: float
    """``request.timeout.ms``: for one answer."""
    access: Callable[[], ConnectionSecurity | None] = lambda: None
    """Security settings of the inter-broker listener."""


class TxnMarkerSender:
    """Queues of markers, one for each leader."""

    def __init__(
        self,
        env: Env,
        around: MarkerSenderDependencies,
        epoch_of: Callable[[MarkersRequested], int | None],
        marked: Callable[[MarkersWritten], None],
    ) -> None:
        """``epoch_of``: the epoch this node coordinates a transaction under; None where it does not any more."""
        self._env = env
        self._dependencies = around
        self._epoch_of = epoch_of
        self._on_written = marked
        self._inbox: deque[MarkerBatch] = deque()
        self._queues: dict[int, deque[MarkerBatch]] = {}
        """By leader; there is one as long as somebody works it off."""
        self._connections = BrokerConnections(
            env, f"broker-{around.node_id}-txn-marker-sender", around.address, around.access, around.timeout_s
        )
        self._batch_enqueued = trio.Event()

    def deliver(self, due: MarkersRequested) -> None:
        """Enqueue the markers of a transaction."""
        self._enqueue(MarkerBatch(due, tuple(sorted(due.pending_transition.remaining_partitions))))

    def _enqueue(self, letter: MarkerBatch) -> None:
        all_of_them = letter.partitions
        for first in range(0, len(all_of_them), MAX_PARTITIONS_PER_REQUEST):
            self._inbox.append(letter._replace(partitions=all_of_them[first : first + MAX_PARTITIONS_PER_REQUEST]))
        self._batch_enqueued.set()

    async def run(self) -> None:
        """Send markers until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    while self._inbox:
                        self._route(self._inbox.popleft(), nursery)
                        await trio.lowlevel.checkpoint()
                    self._batch_enqueued = trio.Event()
                    await self._batch_enqueued.wait()
        finally:
            self._queues.clear()
            self._connections.close()

    # ------------------------------------------------------------------ leaders

    def _route(self, letter: MarkerBatch, nursery: trio.Nursery) -> None:
        """Give each partition to its leader's queue."""
        if self._epoch_of(letter.markers) is None:
            return
        gone, nowhere = [], []
        by_leader: dict[int, list[TopicPartition]] = {}
        image = self._dependencies.image()
        for at in letter.partitions:
            topic = image.topics.get(at[0])
            told = None if topic is None else topic.partitions.get(at[1])
            if told is None:
                gone.append(at)
            elif told.leader == self._dependencies.node_id or self._dependencies.address(told.leader) is not None:
                by_leader.setdefault(told.leader, []).append(at)
            else:
                nowhere.append(at)
        for leader, partitions in by_leader.items():
            self._queue(leader, letter._replace(partitions=tuple(partitions)), nursery)
        if nowhere:
            nursery.start_soon(self._retry_later, letter, nowhere)
        if gone:
            logger.info(
                "Skipping transaction markers of %s: partitions %s are deleted", letter.markers.transactional_id, gone
            )
            self._on_written(
                MarkersWritten(letter.markers.transactional_id, letter.markers.pending_transition, tuple(gone))
            )

    def _queue(self, leader: int, letter: MarkerBatch, nursery: trio.Nursery) -> None:
        queue = self._queues.get(leader)
        if queue is None:
            self._queues[leader] = deque([letter])
            nursery.start_soon(self._send_queued, leader, nursery)
        else:
            queue.append(letter)

    async def _retry_later(self, letter: MarkerBatch, partitions: Iterable[TopicPartition]) -> None:
        """Look for the leaders of these again, each time after a longer pause."""
        await self._env.sleep(min(MIN_RETRY_BACKOFF_S * 2 ** min(letter.attempts, 16), MAX_RETRY_BACKOFF_S))
        self._enqueue(MarkerBatch(letter.markers, tuple(partitions), letter.attempts + 1))

    # ------------------------------------------------------------------ requests

    async def _send_queued(self, leader: int, nursery: trio.Nursery) -> None:
        """Send a leader its queued markers, one request after the other."""
        queue = self._queues[leader]
        while queue:
            letters, count = [], 0
            while queue and count + len(queue[0].partitions) <= MAX_PARTITIONS_PER_REQUEST:
                letters.append(queue.popleft())
                count += len(letters[-1].partitions)
            request = await self._request(letters)
            if not request.markers:
                continue
            try:
                answer: WriteTxnMarkersResponse | None = await self._send(leader, request)
            except (OSError, WireError) as error:
                logger.info("Sending transaction markers to broker %d failed, retrying: %s", leader, error)
                answer = None
            await self._process_response(letters, answer, nursery)
        del self._queues[leader]

    async def _request(self, letters: list[MarkerBatch]) -> WriteTxnMarkersRequest:
        """Build a request with one marker for each transaction that is still to end."""
        markers: dict[int, WritableTxnMarker] = {}
        for number, (due, partitions, _) in enumerate(letters, 1):
            if not number % MAX_BATCHES_PER_SLICE:
                await trio.lowlevel.checkpoint()
            epoch = self._epoch_of(due)
            if epoch is None:
                continue
            txn = due.pending_transition.before
            marker = markers.get(id(due.pending_transition))
            if marker is None:
                marker = markers[id(due.pending_transition)] = WritableTxnMarker(
                    txn.producer_id,
                    txn.producer_epoch,
                    txn.state is S.PREPARE_COMMIT,
                    coordinator_epoch=epoch,
                    transaction_version=txn.client_transaction_version,
                )
            topics = {topic.name: topic for topic in marker.topics}
            for name, index in partitions:
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = WritableTxnMarkerTopic(name)
                    marker.topics.append(topic)
                topic.partition_indexes.append(index)
        return WriteTxnMarkersRequest(list(markers.values()))

    async def _send(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Return the leader's answer.

        Raises:
            OSError, WireError: there is none.
        """
        if leader == self._dependencies.node_id:
            return await self._dependencies.write_local(request)
        response: WriteTxnMarkersResponse = await self._connections.call(leader, request)
        return response

    async def _process_response(
        self, letters: list[MarkerBatch], answer: WriteTxnMarkersResponse | None, nursery: trio.Nursery
    ) -> None:
        """Process the response; a missing row counts as no response."""
        codes: dict[tuple[int, str, int], int] = {}
        for marker in () if answer is None else answer.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    codes[marker.producer_id, topic.name, row.partition_index] = row.error_code
        for number, letter in enumerate(letters, 1):
            if not number % MAX_BATCHES_PER_SLICE:
                await trio.lowlevel.checkpoint()
            producer_id = letter.markers.pending_transition.before.producer_id
            done, again = [], []
            for at in letter.partitions:
                code = codes.get((producer_id, *at))
                if code in FINAL_ERRORS:
                    done.append(at)
                elif code in FENCED_ERRORS:
                    logger.warning(
                        "Sending transaction marker of %s for partition %s-%d has permanently failed: error %d",
                        letter.markers.transactional_id,
                        *at,
                        code,
                    )
                else:
                    if code is not None and code not in RETRIABLE_ERRORS:
                        logger.error(
                            "Sending transaction marker of %s for partition %s-%d failed, retrying: error %d",
                            letter.markers.transactional_id,
                            *at,
                            code,
                        )
                    again.append(at)
            if again:
                nursery.start_soon(self._retry_later, letter, again)
            if done:
                self._on_written(
                    MarkersWritten(letter.markers.transactional_id, letter.markers.pending_transition, tuple(done))
                )
