"""DescribeShareGroupOffsets (api 90): start offsets of share groups.

Made by KIP-932.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: String = ""
    topics: A[list[DescribeShareGroupOffsetsRequestTopic] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class DescribeShareGroupOffsetsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(90, "0-1", "0+", "broker")
    groups: A[list[DescribeShareGroupOffsetsRequestGroup], wire_field("[]struct")] = field(default_factory=list)


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: A[int, wire_field("int64", "1+", ignorable=True)] = -1
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[DescribeShareGroupOffsetsResponsePartition], wire_field("[]struct")] = field(
        default_factory=list
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: String = ""
    topics: A[list[DescribeShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class DescribeShareGroupOffsetsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(90, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    groups: A[list[DescribeShareGroupOffsetsResponseGroup], wire_field("[]struct")] = field(default_factory=list)
