"""Records of `__transaction_state` (KIP-98).

The last state of each transactional id, written by the transaction coordinator.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Int64, Message, MessageSpec, String, data, wire_field


class TransactionLogKey(Message):
    """Key, type 0, of a record in `__transaction_state`: the transactional id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    transactional_id: Annotated[str, wire_field("string", "0")] = ""
    """`transactional.id` of the producer. Its hash selects the partition of `__transaction_state`."""


class PartitionsSchema(Message):
    """Topic with the partitions that are in the transaction of a TransactionLogValue."""

    topic: String = ""
    """Topic name; `__consumer_offsets` if the transaction commits offsets."""
    partition_ids: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class TransactionLogValue(Message):
    """Value: state, producer and partitions of a transactional id. A tombstone removes an expired id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-1", "1+", 0)
    """Version 1 is flexible; it is written from transaction.version 1 on and has the fields of transaction version 2 as
    tagged fields (KIP-890). New fields are tagged, so that older brokers can read the records (KIP-915).
    """
    producer_id: Int64 = 0
    """Producer id in use."""
    previous_producer_id: Annotated[int, wire_field("int64", "1+", tagged="1+", tag=0)] = -1
    """Producer id before this state, mostly the same one. A producer that repeats a request after its id was replaced
    is recognized by it. -1 if there is none.
    """
    next_producer_id: Annotated[int, wire_field("int64", "1+", tagged="1+", tag=1)] = -1
    """Producer id to use when the transaction is complete, because the epochs of the present one are used up. -1
    otherwise.
    """
    producer_epoch: Int16 = 0
    """Producer epoch in use; requests with another one are fenced. With transaction version 2 it is raised at the end
    of each transaction.
    """
    next_producer_epoch: Annotated[int, wire_field("int16", "1+", tagged="1+", tag=3)] = -1
    """Producer epoch of `next_producer_id`. Always -1: reserved for two-phase commit (KIP-939), and ignored."""
    transaction_timeout_ms: Int32 = 0
    """`transaction.timeout.ms` of the producer: time in ms after which the coordinator aborts an open transaction."""
    transaction_status: Int8 = 0
    """0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort. After 2 or 3 the
    coordinator writes the markers, also after a restart. 6 and 7, Dead and PrepareEpochFence, are not stored.
    """
    transaction_partitions: Annotated[list[PartitionsSchema] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    """Partitions of the open transaction, which need a marker at its end. Null in state Empty; empty when it is
    complete.
    """
    transaction_last_update_timestamp_ms: Int64 = 0
    """Time of this state, in ms since the epoch. An id without an open transaction expires after
    `transactional.id.expiration.ms`.
    """
    transaction_start_timestamp_ms: Int64 = 0
    """Time when the first partition was added, in ms since the epoch; -1 if none was since InitProducerId."""
    client_transaction_version: Annotated[int, wire_field("int16", "1+", tagged="1+", tag=2)] = 0
    """Transaction version of the producer in its open or last transaction: 2 if the producer epoch is raised at the end
    of each transaction, else 0 (KIP-890).
    """
