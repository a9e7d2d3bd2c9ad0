"""DeleteRecords (api 21): move the log start forward.

Made by KIP-107.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class DeleteRecordsPartition(Message):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message):
    name: String = ""
    partitions: A[list[DeleteRecordsPartition], wire_field("[]struct")] = field(default_factory=list)


class DeleteRecordsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(21, "0-2", "2+", "broker")
    topics: A[list[DeleteRecordsTopic], wire_field("[]struct")] = field(default_factory=list)
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    name: String = ""
    partitions: A[list[DeleteRecordsPartitionResult], wire_field("[]struct")] = field(default_factory=list)


class DeleteRecordsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(21, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    topics: A[list[DeleteRecordsTopicResult], wire_field("[]struct")] = field(default_factory=list)
