"""CreatePartitions (api 37): add partitions to topics.

Made by KIP-195; version 3 brings throttling (KIP-599).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class CreatePartitionsAssignment(Message):
    broker_ids: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class CreatePartitionsTopic(Message):
    name: String = ""
    count: Int32 = 0
    assignments: A[list[CreatePartitionsAssignment] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class CreatePartitionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(37, "0-3", "2+", "broker controller")
    topics: A[list[CreatePartitionsTopic], wire_field("[]struct")] = field(default_factory=list)
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class CreatePartitionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(37, "0-3", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[CreatePartitionsTopicResult], wire_field("[]struct")] = field(default_factory=list)
