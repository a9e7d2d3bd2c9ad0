"""DescribeTransactions (api 65): state of transactions by id.

Made by KIP-664.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Int64, Message, Spec, String, request, response, w


class DescribeTransactionsRequest(Message):
    SPEC: ClassVar[Spec] = request(65, "0", "0+", "broker")
    transactional_ids: A[list[str], w("[]string")] = field(default_factory=list)


class TopicData(Message):
    topic: String = ""
    partitions: A[list[int], w("[]int32")] = field(default_factory=list)


class TransactionState(Message):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: A[list[TopicData], w("[]struct")] = field(default_factory=list)


class DescribeTransactionsResponse(Message):
    SPEC: ClassVar[Spec] = response(65, "0", "0+")
    throttle_time_ms: Int32 = 0
    transaction_states: A[list[TransactionState], w("[]struct")] = field(default_factory=list)
