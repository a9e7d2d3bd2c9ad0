"""AddPartitionsToTxn (api 24): enlist partitions in a transaction.

From version 4 on brokers ask, for many transactions at once (KIP-890).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class AddPartitionsToTxnTopic(Message):
    name: String = ""
    partitions: A[list[int], w("[]int32")] = field(default_factory=list)


class AddPartitionsToTxnTransaction(Message):
    transactional_id: A[str, w("string", "4+")] = ""
    producer_id: A[int, w("int64", "4+")] = 0
    producer_epoch: A[int, w("int16", "4+")] = 0
    verify_only: A[bool, w("bool", "4+")] = False
    topics: A[list[AddPartitionsToTxnTopic], w("[]struct", "4+")] = field(default_factory=list)


class AddPartitionsToTxnRequest(Message):
    SPEC: ClassVar[Spec] = request(24, "0-5", "3+", "broker")
    transactions: A[list[AddPartitionsToTxnTransaction], w("[]struct", "4+")] = field(default_factory=list)
    v3_and_below_transactional_id: A[str, w("string", "0-3")] = ""
    v3_and_below_producer_id: A[int, w("int64", "0-3")] = 0
    v3_and_below_producer_epoch: A[int, w("int16", "0-3")] = 0
    v3_and_below_topics: A[list[AddPartitionsToTxnTopic], w("[]struct", "0-3")] = field(default_factory=list)


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message):
    name: String = ""
    results_by_partition: A[list[AddPartitionsToTxnPartitionResult], w("[]struct")] = field(default_factory=list)


class AddPartitionsToTxnResult(Message):
    transactional_id: A[str, w("string", "4+")] = ""
    topic_results: A[list[AddPartitionsToTxnTopicResult], w("[]struct", "4+")] = field(default_factory=list)


class AddPartitionsToTxnResponse(Message):
    SPEC: ClassVar[Spec] = response(24, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    error_code: A[int, w("int16", "4+", ignorable=True)] = 0
    results_by_transaction: A[list[AddPartitionsToTxnResult], w("[]struct", "4+")] = field(default_factory=list)
    results_by_topic_v3_and_below: A[list[AddPartitionsToTxnTopicResult], w("[]struct", "0-3")] = field(
        default_factory=list
    )
