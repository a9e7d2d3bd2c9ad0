"""DescribeTopicPartitions (api 75): topics and partitions in pages.

Made by KIP-966.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, String, request, response, w


class TopicRequest(Message):
    name: String = ""


class DescribeTopicPartitionsRequestCursor(Message):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    SPEC: ClassVar[Spec] = request(75, "0", "0+", "broker")
    topics: A[list[TopicRequest], w("[]struct")] = field(default_factory=list)
    response_partition_limit: Int32 = 2000
    cursor: A[DescribeTopicPartitionsRequestCursor | None, w("struct", nullable="0+")] = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: A[int, w("int32", ignorable=True)] = -1
    replica_nodes: A[list[int], w("[]int32")] = field(default_factory=list)
    isr_nodes: A[list[int], w("[]int32")] = field(default_factory=list)
    eligible_leader_replicas: A[list[int] | None, w("[]int32", nullable="0+")] = None
    last_known_elr: A[list[int] | None, w("[]int32", nullable="0+")] = None
    offline_replicas: A[list[int], w("[]int32", ignorable=True)] = field(default_factory=list)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = 0
    name: A[str | None, w("string", nullable="0+")] = ""
    topic_id: A[bytes, w("uuid", ignorable=True)] = ZERO_UUID
    is_internal: A[bool, w("bool", ignorable=True)] = False
    partitions: A[list[DescribeTopicPartitionsResponsePartition], w("[]struct")] = field(default_factory=list)
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponseCursor(Message):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message):
    SPEC: ClassVar[Spec] = response(75, "0", "0+")
    throttle_time_ms: A[int, w("int32", ignorable=True)] = 0
    topics: A[list[DescribeTopicPartitionsResponseTopic], w("[]struct")] = field(default_factory=list)
    next_cursor: A[DescribeTopicPartitionsResponseCursor | None, w("struct", nullable="0+")] = None
