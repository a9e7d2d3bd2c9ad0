"""InitProducerId (API 22): get a producer id and epoch; fences older producers of a transactional id (KIP-98)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class InitProducerIdRequest(Message):
    """Request of an idempotent or transactional producer for a producer id and epoch, or a higher epoch."""

    SPEC: ClassVar[MessageSpec] = request(22, "0-6", "2+", "broker", latest_unstable=True)
    """Version 2 is flexible, 3 lets a producer continue after an error (KIP-360), 4 brings PRODUCER_FENCED (KIP-588), 5
    TRANSACTION_ABORTABLE (KIP-890). Version 6, two-phase commit (KIP-939), is not stable and not advertised.

    Flow: An idempotent producer sends it to any broker before its first batch, a transactional one to its transaction
    coordinator. The coordinator aborts an open transaction of the id first and increases the epoch, which fences the
    previous producer.
    """
    transactional_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`transactional.id` of the producer, null if it is only idempotent: then any broker returns a new producer id. An
    open transaction of this id is aborted first.
    """
    transaction_timeout_ms: Int32 = 0
    """`transaction.timeout.ms`: the coordinator aborts a transaction that is open for longer. Below 1
    or above `transaction.max.timeout.ms` of the broker it is rejected with INVALID_TRANSACTION_TIMEOUT.
    """
    producer_id: Annotated[int, wire_field("int64", "3+")] = -1
    """Producer id that the producer has and continues with, -1 if it has none."""
    producer_epoch: Annotated[int, wire_field("int16", "3+")] = -1
    """Epoch that the producer has, -1 if it has none. If another producer has taken over, the request is rejected with
    PRODUCER_FENCED, up to version 3 with INVALID_PRODUCER_EPOCH.
    """
    enable2_pc: Annotated[bool, wire_field("bool", "6+")] = False
    """True for two-phase commit. Not used: version 6 is not advertised."""
    keep_prepared_txn: Annotated[bool, wire_field("bool", "6+")] = False
    """True to keep a prepared transaction open instead of aborting it. Not used: version 6 is not advertised."""


class InitProducerIdResponse(Message):
    """Producer id and epoch for the batches of the producer, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(22, "0-6", "2+")
    throttle_time_ms: Annotated[int, wire_field("int32", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or CONCURRENT_TRANSACTIONS (retry: the open transaction is being aborted), PRODUCER_FENCED,
    INVALID_TRANSACTION_TIMEOUT, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED.
    """
    producer_id: Int64 = -1
    """Producer id; the same for a transactional id until its epochs are used up. -1 with an error."""
    producer_epoch: Int16 = 0
    """Epoch of the producer: 0 for a new id, one higher for each new producer of a transactional id. Brokers reject
    batches of older epochs. -1 with an error.
    """
    ongoing_txn_producer_id: Annotated[int, wire_field("int64", "6+")] = -1
    """Producer id of the transaction that was kept open, -1 if there is none. Not used: version 6 is not advertised."""
    ongoing_txn_producer_epoch: Annotated[int, wire_field("int16", "6+")] = -1
    """Epoch of the transaction that was kept open, -1 if there is none. Not used: version 6 is not advertised."""
