"""InitializeShareGroupState (api 83): start the stored state of a share partition.

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
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class InitializeShareGroupStateRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(83, "0", "0+", "broker")
    group_id: String = ""
    topics: A[list[InitializeStateData], wire_field("[]struct")] = field(default_factory=list)


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class InitializeStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)


class InitializeShareGroupStateResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(83, "0", "0+")
    results: A[list[InitializeStateResult], wire_field("[]struct")] = field(default_factory=list)
