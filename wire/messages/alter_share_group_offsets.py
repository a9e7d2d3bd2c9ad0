"""AlterShareGroupOffsets (api 91): set start offsets of share groups.

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


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: String = ""
    partitions: A[list[AlterShareGroupOffsetsRequestPartition], wire_field("[]struct")] = field(default_factory=list)


class AlterShareGroupOffsetsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(91, "0", "0+", "broker")
    group_id: String = ""
    topics: A[list[AlterShareGroupOffsetsRequestTopic], wire_field("[]struct")] = field(default_factory=list)


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[AlterShareGroupOffsetsResponsePartition], wire_field("[]struct")] = field(default_factory=list)


class AlterShareGroupOffsetsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(91, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    responses: A[list[AlterShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(default_factory=list)
