"""AddPartitionsToTxn (api 24): enlist partitions in a transaction.

From version 4 on brokers ask, for many transactions at once (KIP-890).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AddPartitionsToTxnTopic(Message):
    name: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class AddPartitionsToTxnTransaction(Message):
    transactional_id: A[str, wire_field("string", "4+")] = ""
    producer_id: A[int, wire_field("int64", "4+")] = 0
    producer_epoch: A[int, wire_field("int16", "4+")] = 0
    verify_only: A[bool, wire_field("bool", "4+")] = False
    topics: A[list[AddPartitionsToTxnTopic], wire_field("[]struct", "4+")] = field(default_factory=list)


class AddPartitionsToTxnRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(24, "0-5", "3+", "broker")
    transactions: A[list[AddPartitionsToTxnTransaction], wire_field("[]struct", "4+")] = field(default_factory=list)
    v3_and_below_transactional_id: A[str, wire_field("string", "0-3")] = ""
    v3_and_below_producer_id: A[int, wire_field("int64", "0-3")] = 0
    v3_and_below_producer_epoch: A[int, wire_field("int16", "0-3")] = 0
    v3_and_below_topics: A[list[AddPartitionsToTxnTopic], wire_field("[]struct", "0-3")] = field(default_factory=list)


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message):
    name: String = ""
    results_by_partition: A[list[AddPartitionsToTxnPartitionResult], wire_field("[]struct")] = field(
        default_factory=list
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: A[str, wire_field("string", "4+")] = ""
    topic_results: A[list[AddPartitionsToTxnTopicResult], wire_field("[]struct", "4+")] = field(default_factory=list)


class AddPartitionsToTxnResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(24, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    error_code: A[int, wire_field("int16", "4+", ignorable=True)] = 0
    results_by_transaction: A[list[AddPartitionsToTxnResult], wire_field("[]struct", "4+")] = field(
        default_factory=list
    )
    results_by_topic_v3_and_below: A[list[AddPartitionsToTxnTopicResult], wire_field("[]struct", "0-3")] = field(
        default_factory=list
    )
