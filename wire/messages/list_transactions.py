"""ListTransactions (API 66): list the transactional ids that a broker coordinates (KIP-664)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class ListTransactionsRequest(Message):
    """Request to a broker for the transactional ids that it coordinates and that pass all filters."""

    SPEC: ClassVar[MessageSpec] = request(66, "0-2", "0+", "broker")
    """Version 1 adds a filter by duration (KIP-994), version 2 by a pattern of the id (KIP-1152).

    Flow: A tool sends it to all brokers, since each lists the transactional ids that it coordinates.
    """
    state_filters: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """States, such as `Ongoing`; empty for all."""
    producer_id_filters: Annotated[list[int], wire_field("[]int64")] = field(default_factory=list)
    """Producer ids; empty for all."""
    duration_filter: Annotated[int, wire_field("int64", "1+")] = -1
    """Time in ms that must have passed since the start of the open or last transaction; negative for all. An id without
    a transaction since InitProducerId always passes, as its start is -1.
    """
    transactional_id_pattern: Annotated[str | None, wire_field("string", "2+", nullable="2+")] = None
    """Regular expression (RE2/J syntax) for the whole id; null or empty for all. An invalid one is rejected with
    INVALID_REGULAR_EXPRESSION.
    """


class TransactionState(Message):
    """Transactional id in a ListTransactions response, with its producer id and state."""

    transactional_id: String = ""
    """`transactional.id` of the producer."""
    producer_id: Int64 = 0
    """Id of the current producer."""
    transaction_state: String = ""
    """`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit` or `CompleteAbort`."""


class ListTransactionsResponse(Message):
    """Transactional ids that the responding broker coordinates and that pass the filters."""

    SPEC: ClassVar[MessageSpec] = response(66, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__transaction_state`, or
    INVALID_REGULAR_EXPRESSION.
    """
    unknown_state_filters: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """States of the request that do not exist."""
    transaction_states: Annotated[list[TransactionState], wire_field("[]struct")] = field(default_factory=list)
    """Transactional ids that the principal may describe."""
