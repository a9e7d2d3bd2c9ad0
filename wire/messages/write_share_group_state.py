"""WriteShareGroupState (api 85): store the state of a share partition.

Made by KIP-932.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int8,
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


class StateBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Message):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    state_batches: A[list[StateBatch], wire_field("[]struct")] = field(default_factory=list)


class WriteStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class WriteShareGroupStateRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(85, "0-1", "0+", "broker")
    group_id: String = ""
    topics: A[list[WriteStateData], wire_field("[]struct")] = field(default_factory=list)


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class WriteStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)


class WriteShareGroupStateResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(85, "0-1", "0+")
    results: A[list[WriteStateResult], wire_field("[]struct")] = field(default_factory=list)
