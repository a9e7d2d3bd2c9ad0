"""ConsumerGroupHeartbeat (api 68): the one request of the new consumer protocol (KIP-848)."""

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


class ConsumerGroupHeartbeatRequestTopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ConsumerGroupHeartbeatRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(68, "0-1", "0+", "broker")
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: A[str | None, wire_field("string", nullable="0+")] = None
    rack_id: A[str | None, wire_field("string", nullable="0+")] = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: A[list[str] | None, wire_field("[]string", nullable="0+")] = None
    subscribed_topic_regex: A[str | None, wire_field("string", "1+", nullable="1+")] = None
    server_assignor: A[str | None, wire_field("string", nullable="0+")] = None
    topic_partitions: A[
        list[ConsumerGroupHeartbeatRequestTopicPartitions] | None, wire_field("[]struct", nullable="0+")
    ] = None


class ConsumerGroupHeartbeatResponseTopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class Assignment(Message):
    topic_partitions: A[list[ConsumerGroupHeartbeatResponseTopicPartitions], wire_field("[]struct")] = field(
        default_factory=list
    )


class ConsumerGroupHeartbeatResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(68, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    member_id: A[str | None, wire_field("string", nullable="0+")] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: A[Assignment | None, wire_field("struct", nullable="0+")] = None
