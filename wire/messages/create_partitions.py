"""CreatePartitions (api 37): add partitions to topics.

Made by KIP-195; version 3 brings throttling (KIP-599).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Bool, Int16, Int32, Message, Spec, String, request, response, w


class CreatePartitionsAssignment(Message):
    broker_ids: A[list[int], w("[]int32")] = field(default_factory=list)


class CreatePartitionsTopic(Message):
    name: String = ""
    count: Int32 = 0
    assignments: A[list[CreatePartitionsAssignment] | None, w("[]struct", nullable="0+")] = field(default_factory=list)


class CreatePartitionsRequest(Message):
    SPEC: ClassVar[Spec] = request(37, "0-3", "2+", "broker controller")
    topics: A[list[CreatePartitionsTopic], w("[]struct")] = field(default_factory=list)
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = None


class CreatePartitionsResponse(Message):
    SPEC: ClassVar[Spec] = response(37, "0-3", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[CreatePartitionsTopicResult], w("[]struct")] = field(default_factory=list)
