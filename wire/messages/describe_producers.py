"""DescribeProducers (api 61): active producers of partitions.

Made by KIP-664.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class TopicRequest(Message):
    name: String = ""
    partition_indexes: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class DescribeProducersRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(61, "0", "0+", "broker")
    topics: A[list[TopicRequest], wire_field("[]struct")] = field(default_factory=list)


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
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    active_producers: A[list[ProducerState], wire_field("[]struct")] = field(default_factory=list)


class TopicResponse(Message):
    name: String = ""
    partitions: A[list[PartitionResponse], wire_field("[]struct")] = field(default_factory=list)


class DescribeProducersResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(61, "0", "0+")
    throttle_time_ms: Int32 = 0
    topics: A[list[TopicResponse], wire_field("[]struct")] = field(default_factory=list)
