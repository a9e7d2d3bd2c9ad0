"""ShareGroupHeartbeat (api 76): membership of a share group (KIP-932)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, String, Uuid, request, response, w


class ShareGroupHeartbeatRequest(Message):
    SPEC: ClassVar[Spec] = request(76, "1", "0+", "broker")
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: A[str | None, w("string", nullable="0+")] = None
    subscribed_topic_names: A[list[str] | None, w("[]string", nullable="0+")] = None


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], w("[]int32")] = field(default_factory=list)


class Assignment(Message):
    topic_partitions: A[list[TopicPartitions], w("[]struct")] = field(default_factory=list)


class ShareGroupHeartbeatResponse(Message):
    SPEC: ClassVar[Spec] = response(76, "1", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = None
    member_id: A[str | None, w("string", nullable="0+")] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: A[Assignment | None, w("struct", nullable="0+")] = None
