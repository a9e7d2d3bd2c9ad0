"""ShareGroupHeartbeat (api 76): membership of a share group (KIP-932)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class ShareGroupHeartbeatRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(76, "1", "0+", "broker")
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: A[str | None, wire_field("string", nullable="0+")] = None
    subscribed_topic_names: A[list[str] | None, wire_field("[]string", nullable="0+")] = None


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class Assignment(Message):
    topic_partitions: A[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)


class ShareGroupHeartbeatResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(76, "1", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    member_id: A[str | None, wire_field("string", nullable="0+")] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: A[Assignment | None, wire_field("struct", nullable="0+")] = None
