"""Sender of WriteTxnMarkers: one request at a time to each partition leader, until all markers are written.

After a leader change the new leader is looked up, and a failed request is retried, as long as this broker coordinates
the transaction. Deleted partitions are skipped. A partition with a newer coordinator or producer epoch is given up, and
the transaction is not completed here.

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
"""Maximum number of partitions in a request (further ones wait for its response), and in one lookup of leaders."""
MAX_BATCHES_PER_SLICE = 100
"""Marker batches processed in one time slice: finding the shard of a transaction may cost 20 us for each."""
FINAL_ERRORS = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""Error codes after which the marker of a partition is not sent again: written, or transactions are unsupported."""
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
"""Error codes that are retried without an error in the log."""
FENCED_ERRORS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Error codes because of a newer coordinator or producer epoch: the marker is not retried."""

SendMarkers = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Sends a WriteTxnMarkers request and returns the response."""


class MarkerBatch(NamedTuple):
    """Partitions that still need the marker of one transaction, and the number of failed attempts."""

    markers: MarkersRequested
    partitions: tuple[TopicPartition, ...]
    attempts: int = 0


class MarkerSenderDependencies(NamedTuple):
    """Functions and settings of the node that the marker sender uses."""

    node_id: int
    image: Callable[[], MetadataImage]
    address: Callable[[int], tuple[str, int] | None]
    """Returns the inter-broker (host, port) of a broker; None if unknown."""
    write_local: SendMarkers
    """Writes markers to partitions that this broker leads."""
    timeout_s: float
    """``request.timeout.ms`` in seconds, for one response."""
    access: Callable[[], ConnectionSecurity | None] = lambda: None
    """Returns the security settings of the inter-broker listener; None for plaintext."""


class TxnMarkerSender:
    """Sender of transaction markers, with a queue for each partition leader; `run` must be running."""

    def __init__(
        self,
        env: Env,
        around: MarkerSenderDependencies,
        epoch_of: Callable[[MarkersRequested], int | None],
        marked: Callable[[MarkersWritten], None],
    ) -> None:
        """Initialize without markers.

        Args:
            env: environment (clock, network).
            around: functions and settings of the node.
            epoch_of: returns the coordinator epoch for a transaction; None if this broker no longer coordinates it.
            marked: called with partitions that need no marker any more.
        """
        self._env = env
        self._dependencies = around
        self._epoch_of = epoch_of
        self._on_written = marked
        self._inbox: deque[MarkerBatch] = deque()
        self._queues: dict[int, deque[MarkerBatch]] = {}
        """Queued batches by leader id; a queue exists while a task sends from it."""
        self._connections = BrokerConnections(
            env, f"broker-{around.node_id}-txn-marker-sender", around.address, around.access, around.timeout_s
        )
        self._batch_enqueued = trio.Event()

    def deliver(self, due: MarkersRequested) -> None:
        """Enqueue the markers of a transaction for the partitions that have none yet; `run` sends them."""
        self._enqueue(MarkerBatch(due, tuple(sorted(due.pending_transition.remaining_partitions))))

    def _enqueue(self, batch: MarkerBatch) -> None:
        all_of_them = batch.partitions
        for first in range(0, len(all_of_them), MAX_PARTITIONS_PER_REQUEST):
            self._inbox.append(batch._replace(partitions=all_of_them[first : first + MAX_PARTITIONS_PER_REQUEST]))
        self._batch_enqueued.set()

    async def run(self) -> None:
        """Send the enqueued markers until cancelled."""
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

    def _route(self, batch: MarkerBatch, nursery: trio.Nursery) -> None:
        """Append each partition of a batch to the queue of its leader; start a task that sends from a new queue.

        Partitions without a leader of known address are retried later; deleted ones count as written. Drop the batch
        if this broker no longer coordinates its transaction.
        """
        if self._epoch_of(batch.markers) is None:
            return
        gone, nowhere = [], []
        by_leader: dict[int, list[TopicPartition]] = {}
        image = self._dependencies.image()
        for at in batch.partitions:
            topic = image.topics.get(at[0])
            registration = None if topic is None else topic.partitions.get(at[1])
            if registration is None:
                gone.append(at)
            elif (
                registration.leader == self._dependencies.node_id
                or self._dependencies.address(registration.leader) is not None
            ):
                by_leader.setdefault(registration.leader, []).append(at)
            else:
                nowhere.append(at)
        for leader, partitions in by_leader.items():
            self._queue(leader, batch._replace(partitions=tuple(partitions)), nursery)
        if nowhere:
            nursery.start_soon(self._retry_later, batch, nowhere)
        if gone:
            logger.info(
                "Skipping transaction markers of %s: partitions %s are deleted", batch.markers.transactional_id, gone
            )
            self._on_written(
                MarkersWritten(batch.markers.transactional_id, batch.markers.pending_transition, tuple(gone))
            )

    def _queue(self, leader: int, batch: MarkerBatch, nursery: trio.Nursery) -> None:
        queue = self._queues.get(leader)
        if queue is None:
            self._queues[leader] = deque([batch])
            nursery.start_soon(self._send_queued, leader, nursery)
        else:
            queue.append(batch)

    async def _retry_later(self, batch: MarkerBatch, partitions: Iterable[TopicPartition]) -> None:
        """Enqueue partitions of a batch again, with a new lookup of their leaders, after an exponential back-off."""
        await self._env.sleep(min(MIN_RETRY_BACKOFF_S * 2 ** min(batch.attempts, 16), MAX_RETRY_BACKOFF_S))
        self._enqueue(MarkerBatch(batch.markers, tuple(partitions), batch.attempts + 1))

    # ------------------------------------------------------------------ requests

    async def _send_queued(self, leader: int, nursery: trio.Nursery) -> None:
        """Send the queued markers for a leader, one request at a time, until the queue is empty; then remove the queue.

        Those that fail are enqueued again for their present leaders after a back-off, by tasks in ``nursery``.
        """
        queue = self._queues[leader]
        while queue:
            batches, count = [], 0
            while queue and count + len(queue[0].partitions) <= MAX_PARTITIONS_PER_REQUEST:
                batches.append(queue.popleft())
                count += len(batches[-1].partitions)
            request = await self._request(batches)
            if not request.markers:
                continue
            try:
                answer: WriteTxnMarkersResponse | None = await self._send(leader, request)
            except (OSError, WireError) as error:
                logger.info("Sending transaction markers to broker %d failed, retrying: %s", leader, error)
                answer = None
            await self._process_response(batches, answer, nursery)
        del self._queues[leader]

    async def _request(self, batches: list[MarkerBatch]) -> WriteTxnMarkersRequest:
        """Return a request with one marker for each transaction that this broker still coordinates; it may be empty."""
        markers: dict[int, WritableTxnMarker] = {}
        for number, (due, partitions, _) in enumerate(batches, 1):
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
        """Send a request to a leader, in this process if it is this broker; return the response.

        Raises:
            OSError, WireError: there is no valid response.
        """
        if leader == self._dependencies.node_id:
            return await self._dependencies.write_local(request)
        response: WriteTxnMarkersResponse = await self._connections.call(leader, request)
        return response

    async def _process_response(
        self, batches: list[MarkerBatch], answer: WriteTxnMarkersResponse | None, nursery: trio.Nursery
    ) -> None:
        """Report the partitions whose marker is written or unsupported; send others again later, with a back-off.

        Partitions with a newer coordinator or producer epoch are dropped. ``answer``: None if the request failed.
        """
        codes: dict[tuple[int, str, int], int] = {}
        for marker in () if answer is None else answer.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    codes[marker.producer_id, topic.name, row.partition_index] = row.error_code
        for number, batch in enumerate(batches, 1):
            if not number % MAX_BATCHES_PER_SLICE:
                await trio.lowlevel.checkpoint()
            producer_id = batch.markers.pending_transition.before.producer_id
            done, again = [], []
            for at in batch.partitions:
                code = codes.get((producer_id, *at))
                if code in FINAL_ERRORS:
                    done.append(at)
                elif code in FENCED_ERRORS:
                    logger.warning(
                        "Sending transaction marker of %s for partition %s-%d has permanently failed: error %d",
                        batch.markers.transactional_id,
                        *at,
                        code,
                    )
                else:
                    if code is not None and code not in RETRIABLE_ERRORS:
                        logger.error(
                            "Sending transaction marker of %s for partition %s-%d failed, retrying: error %d",
                            batch.markers.transactional_id,
                            *at,
                            code,
                        )
                    again.append(at)
            if again:
                nursery.start_soon(self._retry_later, batch, again)
            if done:
                self._on_written(
                    MarkersWritten(batch.markers.transactional_id, batch.markers.pending_transition, tuple(done))
                )
