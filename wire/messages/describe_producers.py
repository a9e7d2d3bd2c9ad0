"""DescribeProducers (api 61): active producers of partitions.

Made by KIP-664.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Int64, Message, Spec, String, request, response, w


class TopicRequest(Message):
    name: String = ""
    partition_indexes: A[list[int], w("[]int32")] = field(default_factory=list)


class DescribeProducersRequest(Message):
    SPEC: ClassVar[Spec] = request(61, "0", "0+", "broker")
    topics: A[list[TopicRequest], w("[]struct")] = field(default_factory=list)


class ProducerState(Message):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = None
    active_producers: A[list[ProducerState], w("[]struct")] = field(default_factory=list)


class TopicResponse(Message):
    name: String = ""
    partitions: A[list[PartitionResponse], w("[]struct")] = field(default_factory=list)


class DescribeProducersResponse(Message):
    SPEC: ClassVar[Spec] = response(61, "0", "0+")
    throttle_time_ms: Int32 = 0
    topics: A[list[TopicResponse], w("[]struct")] = field(default_factory=list)
