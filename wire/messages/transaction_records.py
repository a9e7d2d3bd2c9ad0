"""`__transaction_state`: one record per transactional id."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Int64, Message, MessageSpec, String, data, wire_field


class TransactionLogKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    transactional_id: A[str, wire_field("string", "0")] = ""


class PartitionsSchema(Message):
    topic: String = ""
    partition_ids: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class TransactionLogValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-1", "1+", 0)
    producer_id: Int64 = 0
    previous_producer_id: A[int, wire_field("int64", "1+", tagged="1+", tag=0)] = -1
    next_producer_id: A[int, wire_field("int64", "1+", tagged="1+", tag=1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: A[int, wire_field("int16", "1+", tagged="1+", tag=3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: A[list[PartitionsSchema] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: A[int, wire_field("int16", "1+", tagged="1+", tag=2)] = 0
