"""DescribeLogDirs (api 35): what lies in a broker's directories.

Made by KIP-113; version 4 brings the space of the volume (KIP-827).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class DescribableLogDirTopic(Message):
    topic: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class DescribeLogDirsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(35, "1-5", "2+", "broker")
    topics: A[list[DescribableLogDirTopic] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)


class DescribeLogDirsPartition(Message):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message):
    name: String = ""
    partitions: A[list[DescribeLogDirsPartition], wire_field("[]struct")] = field(default_factory=list)


class DescribeLogDirsResult(Message):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: A[list[DescribeLogDirsTopic], wire_field("[]struct")] = field(default_factory=list)
    total_bytes: A[int, wire_field("int64", "4+", ignorable=True)] = -1
    usable_bytes: A[int, wire_field("int64", "4+", ignorable=True)] = -1
    is_cordoned: A[bool, wire_field("bool", "5+", ignorable=True)] = False


class DescribeLogDirsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(35, "1-5", "2+")
    throttle_time_ms: Int32 = 0
    error_code: A[int, wire_field("int16", "3+", ignorable=True)] = 0
    results: A[list[DescribeLogDirsResult], wire_field("[]struct")] = field(default_factory=list)
