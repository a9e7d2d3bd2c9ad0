"""DescribeTransactions (api 65): state of transactions by id.

Made by KIP-664.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class DescribeTransactionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(65, "0", "0+", "broker")
    transactional_ids: A[list[str], wire_field("[]string")] = field(default_factory=list)


class TopicData(Message):
    topic: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class TransactionState(Message):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: A[list[TopicData], wire_field("[]struct")] = field(default_factory=list)


class DescribeTransactionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(65, "0", "0+")
    throttle_time_ms: Int32 = 0
    transaction_states: A[list[TransactionState], wire_field("[]struct")] = field(default_factory=list)
