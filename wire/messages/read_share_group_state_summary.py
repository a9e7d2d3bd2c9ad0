"""ReadShareGroupStateSummary (api 87): only the start offset of a stored share state.

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


class PartitionData(Message):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class ReadShareGroupStateSummaryRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(87, "0-1", "0+", "broker")
    group_id: String = ""
    topics: A[list[ReadStateSummaryData], wire_field("[]struct")] = field(default_factory=list)


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: A[int, wire_field("int32", "1+", ignorable=True)] = -1


class ReadStateSummaryResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)


class ReadShareGroupStateSummaryResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(87, "0-1", "0+")
    results: A[list[ReadStateSummaryResult], wire_field("[]struct")] = field(default_factory=list)
