"""Persister of share partition states: calls the share coordinator on this or another broker.

Each call is for one share partition. If the coordinator is loading or unreachable, it is looked up again: up to five
times, after 1, 2, 4, 8 and 16 seconds. Later calls for the share partition do not overtake a retried call. A call that
was overtaken is not retried: it would restore an older start offset, before records that are final.

Source: ``DefaultStatePersister.java``, ``PersisterStateManager.java`` (apache/kafka 4.3.1), KIP-932.

Deviations: the coordinator is looked up in the metadata image, without a FindCoordinator request. Kafka's calls
overtake each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.interbroker.connections import BrokerConnections, InterBrokerDependencies
from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC as TOPIC
from ottla.broker.share_state import state_machine
from ottla.broker.share_state.coordinator import ShareCoordinator, as_coordinator_key
from ottla.broker.share_state.share_group_offsets import UNINITIALIZED, ShareGroupOffset, SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

MAX_ATTEMPTS = 6
MIN_RETRY_BACKOFF_S = 1.0
_RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class _PersisterCall:
    """Pending request to the share coordinator for a share partition.

    The first attempts start in the order of the calls, without a wait for earlier responses. While a call is retried,
    the later ones wait for it.
    """

    __slots__ = (
        "attempts",
        "blocks_later_calls",
        "earlier_calls",
        "finished",
        "first_attempt_started",
        "was_overtaken",
    )

    def __init__(self, before: list[_PersisterCall]) -> None:
        self.earlier_calls = before
        """Calls for the same share partition that were pending at the start of this one, oldest first."""
        self.first_attempt_started = trio.Event()
        """Set once the first attempt has started: the next later call may then start its own."""
        self.attempts = 0
        """Number of attempts, raised to that of failed earlier calls so that queued calls fail together."""
        self.blocks_later_calls = False
        """True if later calls wait until this one has finished, because it is retried or waits for a retried call."""
        self.was_overtaken = False
        """True if a later call has received its response."""
        self.finished = trio.Event()


class Persister:
    """Client of the share coordinator: initializes, reads, writes and deletes states of share partitions."""

    def __init__(self, around: InterBrokerDependencies, coordinator: ShareCoordinator) -> None:
        self._dependencies = around
        self._coordinator = coordinator
        self._connections = BrokerConnections(around.env, "share-persister", around.address, around.access)
        self.close = self._connections.close
        self._calls: dict[SharePartitionKey, list[_PersisterCall]] = {}
        """Pending calls by share partition, oldest first."""

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Initialize the state of a share partition; return once the coordinator has committed it.

        ``start_offset``: -1 if the first leader is to choose it.

        Raises:
            ProtocolError: the error of the share coordinator, or of the last attempt.
        """
        request = initialize_share_group_state.InitializeShareGroupStateRequest(
            key.group_id,
            [
                initialize_share_group_state.InitializeStateData(
                    key.topic_id, [initialize_share_group_state.PartitionData(key.partition, state_epoch, start_offset)]
                )
            ],
        )
        await self._call_in_order(
            key, lambda pending: state_machine.InitializeShareState(pending, key, state_epoch, start_offset), request
        )

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Awaitable[ShareGroupOffset]:
        """Read the state of a share partition, which fences older leader epochs; enqueued at once, after earlier calls.

        The result must be awaited: later calls for the share partition wait for this one. Snapshot epoch and timestamps
        are 0, and ``delivery_complete_count`` is -1, if the coordinator is another broker.

        Raises:
            ProtocolError: when awaited: the error of the share coordinator, or of the last attempt.
        """
        return self._read(self._enqueue(key), key, leader_epoch)

    async def _read(self, own: _PersisterCall, at: SharePartitionKey, leader_epoch: int) -> ShareGroupOffset:
        request = read_share_group_state.ReadShareGroupStateRequest(
            at.group_id,
            [
                read_share_group_state.ReadStateData(
                    at.topic_id, [read_share_group_state.PartitionData(at.partition, leader_epoch)]
                )
            ],
        )
        answer = await self._call_in_order(
            at, lambda pending: state_machine.ReadShareState(pending, at, leader_epoch), request, own
        )
        if isinstance(answer, ShareGroupOffset):
            return answer
        rows = tuple(
            PersisterStateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state)
            for b in answer.state_batches
        )
        return ShareGroupOffset(0, answer.state_epoch, leader_epoch, answer.start_offset, UNINITIALIZED, rows)

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: tuple[PersisterStateBatch, ...],
    ) -> Awaitable[None]:
        """Write start offset and changed delivery states of a share partition; enqueued at once, after earlier calls.

        The result must be awaited: later calls for the share partition wait for this one.
        ``delivery_complete_count``: number of final records from the start offset on.

        Raises:
            ProtocolError: when awaited: the error of the share coordinator, or of the last attempt.
        """
        stored = [
            write_share_group_state.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in batches
        ]
        row = write_share_group_state.PartitionData(
            key.partition, state_epoch, leader_epoch, start_offset, delivery_complete_count, stored
        )
        request = write_share_group_state.WriteShareGroupStateRequest(
            key.group_id, [write_share_group_state.WriteStateData(key.topic_id, [row])]
        )
        state = (key, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
        return self._call_in_order(
            key, lambda pending: state_machine.WriteShareState(pending, *state), request, self._enqueue(key)
        )

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state of a share partition; return once the coordinator has committed that, or had no state.

        Raises:
            ProtocolError: the error of the share coordinator, or of the last attempt.
        """
        request = delete_share_group_state.DeleteShareGroupStateRequest(
            key.group_id,
            [
                delete_share_group_state.DeleteStateData(
                    key.topic_id, [delete_share_group_state.PartitionData(key.partition)]
                )
            ],
        )
        await self._call_in_order(key, lambda pending: state_machine.DeleteShareState(pending, key), request)

    async def read_summary(self, key: SharePartitionKey) -> tuple[int, int, int]:
        """Return start offset, number of final records from it on (both -1 without a state), and last leader epoch.

        No epoch is fenced. The call does not wait for earlier calls for the share partition.

        Raises:
            ProtocolError: the error of the share coordinator, or of the last attempt.
        """
        request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
            key.group_id,
            [
                read_share_group_state_summary.ReadStateSummaryData(
                    key.topic_id, [read_share_group_state_summary.PartitionData(key.partition, -1)]
                )
            ],
        )
        answer = await self._call_with_retries(
            key, lambda pending: state_machine.ReadShareStateSummary(pending, key), request, _PersisterCall([])
        )
        return answer.start_offset, answer.delivery_complete_count, answer.leader_epoch

    # ------------------------------------------------------------------ calls of the coordinator

    def _enqueue(self, at: SharePartitionKey) -> _PersisterCall:
        """Append a new call to the queue of a share partition and return it.

        The order of calls must not depend on which task runs first.
        """
        calls = self._calls.setdefault(at, [])
        own = _PersisterCall(list(calls))
        calls.append(own)
        return own

    async def _call_in_order(
        self,
        at: SharePartitionKey,
        event_of: Callable[[PendingBrokerRequest], Any],
        request: Message,
        own: _PersisterCall | None = None,
    ) -> Any:
        """Call the coordinator after earlier calls for the share partition, with retries; return its response.

        Args:
            at: the share partition.
            event_of: builds the event for a coordinator in this process.
            request: the request for a coordinator on another broker.
            own: the call, if it is enqueued already.

        Raises:
            ProtocolError: the error of the share coordinator, or of the last attempt.
        """
        own = own or self._enqueue(at)
        calls = self._calls[at]
        try:
            if own.earlier_calls and not own.earlier_calls[-1].first_attempt_started.is_set():
                await own.earlier_calls[-1].first_attempt_started.wait()
            answer = await self._call_with_retries(at, event_of, request, own)
            for older in own.earlier_calls:
                older.was_overtaken = True
            own.attempts = 0
            return answer
        finally:
            own.first_attempt_started.set()
            own.finished.set()
            own.earlier_calls = []
            calls.remove(own)
            if not calls:
                del self._calls[at]

    async def _call_with_retries(
        self,
        at: SharePartitionKey,
        event_of: Callable[[PendingBrokerRequest], Any],
        request: Message,
        own: _PersisterCall,
    ) -> Any:
        before, failure = own.earlier_calls, ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        while own.attempts < MAX_ATTEMPTS:
            if own.blocks_later_calls or any(older.blocks_later_calls for older in before):
                own.blocks_later_calls = True
                for older in before:
                    await older.finished.wait()
                    # count the attempts of failed earlier calls, so that queued calls fail together
                    own.attempts = max(own.attempts, older.attempts - 1)
            if own.was_overtaken:
                break
            own.attempts += 1
            own.first_attempt_started.set()
            try:
                return await self._call_once(at, event_of, request)
            except (OSError, WireError) as error:
                failure = ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error))
            except ProtocolError as error:
                if error.code not in _RETRIABLE_ERRORS:
                    raise
                failure = error
            own.blocks_later_calls = True
            if own.attempts < MAX_ATTEMPTS:
                await self._dependencies.env.sleep(MIN_RETRY_BACKOFF_S * 2 ** (own.attempts - 1))
        raise failure.with_traceback(None)

    async def _call_once(
        self, at: SharePartitionKey, event_of: Callable[[PendingBrokerRequest], Any], request: Message
    ) -> Any:
        topic = self._dependencies.image().topics.get(TOPIC)
        if topic is None:
            self._dependencies.create_state_topic()
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        key = as_coordinator_key(at)
        leader = topic.partitions[self._coordinator.partition_for(key)].leader
        if leader == self._dependencies.node_id:
            answer = await self._coordinator.submit(key, event_of).wait()
            if isinstance(answer, ProtocolError):
                raise answer.with_traceback(None)
            return answer
        return await self._call_remote(leader, request)

    async def _call_remote(self, broker_id: int, request: Any) -> Any:
        answer = await self._connections.call(broker_id, request)
        row = next((row for topic in answer.results for row in topic.partitions), None)
        if row is None:
            raise WireError(f"invalid response of broker {broker_id}: the requested partition is missing")
        if row.error_code:
            raise ProtocolError(ErrorCode(row.error_code), row.error_message)
        return row
