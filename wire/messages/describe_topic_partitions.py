"""DescribeTopicPartitions (api 75): topics and partitions in pages.

Made by KIP-966.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class TopicRequest(Message):
    name: String = ""


class DescribeTopicPartitionsRequestCursor(Message):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(75, "0", "0+", "broker")
    topics: A[list[TopicRequest], wire_field("[]struct")] = field(default_factory=list)
    response_partition_limit: Int32 = 2000
    cursor: A[DescribeTopicPartitionsRequestCursor | None, wire_field("struct", nullable="0+")] = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: A[int, wire_field("int32", ignorable=True)] = -1
    replica_nodes: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    isr_nodes: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    eligible_leader_replicas: A[list[int] | None, wire_field("[]int32", nullable="0+")] = None
    last_known_elr: A[list[int] | None, wire_field("[]int32", nullable="0+")] = None
    offline_replicas: A[list[int], wire_field("[]int32", ignorable=True)] = field(default_factory=list)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = 0
    name: A[str | None, wire_field("string", nullable="0+")] = ""
    topic_id: A[bytes, wire_field("uuid", ignorable=True)] = ZERO_UUID
    is_internal: A[bool, wire_field("bool", ignorable=True)] = False
    partitions: A[list[DescribeTopicPartitionsResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponseCursor(Message):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(75, "0", "0+")
    throttle_time_ms: A[int, wire_field("int32", ignorable=True)] = 0
    topics: A[list[DescribeTopicPartitionsResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    next_cursor: A[DescribeTopicPartitionsResponseCursor | None, wire_field("struct", nullable="0+")] = None
