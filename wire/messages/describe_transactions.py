"""DescribeTransactions (API 65): state of transactions by transactional id (KIP-664)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class DescribeTransactionsRequest(Message):
    """Request to the transaction coordinator for the state of transactional ids."""

    SPEC: ClassVar[MessageSpec] = request(65, "0", "0+", "broker")
    """Flow: A tool sends it to the coordinator of each transactional id."""
    transactional_ids: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """`transactional.id` of each producer; all with the same coordinator."""


class TopicData(Message):
    """Topic with partitions that are part of the ongoing transaction of a transactional id."""

    topic: String = ""
    """Topic name. Topics that the principal may not describe are left out."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions in the transaction."""


class TransactionState(Message):
    """State, producer and partitions of a transactional id, or its error code."""

    error_code: Int16 = 0
    """0, or TRANSACTIONAL_ID_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST for an empty id.
    """
    transactional_id: String = ""
    """`transactional.id` from the request."""
    transaction_state: String = ""
    """`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit` or `CompleteAbort`."""
    transaction_timeout_ms: Int32 = 0
    """`transaction.timeout.ms` of the producer; the coordinator aborts an older transaction."""
    transaction_start_time_ms: Int64 = 0
    """Start of the open or the last transaction in ms since the epoch; -1 if there was none since InitProducerId."""
    producer_id: Int64 = 0
    """Id of the current producer."""
    producer_epoch: Int16 = 0
    """Epoch of the current producer."""
    topics: Annotated[list[TopicData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions in the open transaction. While it ends, those that have no marker yet."""


class DescribeTransactionsResponse(Message):
    """Response to DescribeTransactions: the state of each transactional id, or its error code."""

    SPEC: ClassVar[MessageSpec] = response(65, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    transaction_states: Annotated[list[TransactionState], wire_field("[]struct")] = field(default_factory=list)
    """Results. An id that occurs twice in the request has one result."""
