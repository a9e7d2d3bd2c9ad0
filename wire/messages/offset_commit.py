"""OffsetCommit (api 8): store a group's positions.

Version 5 leaves retention to the broker (KIP-211); 6 brings leader epochs (KIP-320), 7 static members (KIP-345), 9
members of the new protocol and 10 topic ids (KIP-848).
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
    request,
    response,
    wire_field,
)


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: A[int, wire_field("int32", "6+", ignorable=True)] = -1
    committed_metadata: A[str | None, wire_field("string", nullable="0+")] = ""


class OffsetCommitRequestTopic(Message):
    name: A[str, wire_field("string", "0-9", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    partitions: A[list[OffsetCommitRequestPartition], wire_field("[]struct")] = field(default_factory=list)


class OffsetCommitRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(8, "2-10", "8+", "broker")
    group_id: String = ""
    generation_id_or_member_epoch: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    member_id: A[str, wire_field("string", "1+", ignorable=True)] = ""
    group_instance_id: A[str | None, wire_field("string", "7+", nullable="7+")] = None
    retention_time_ms: A[int, wire_field("int64", "2-4", ignorable=True)] = -1
    topics: A[list[OffsetCommitRequestTopic], wire_field("[]struct")] = field(default_factory=list)


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    name: A[str, wire_field("string", "0-9", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    partitions: A[list[OffsetCommitResponsePartition], wire_field("[]struct")] = field(default_factory=list)


class OffsetCommitResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(8, "2-10", "8+")
    throttle_time_ms: A[int, wire_field("int32", "3+", ignorable=True)] = 0
    topics: A[list[OffsetCommitResponseTopic], wire_field("[]struct")] = field(default_factory=list)
