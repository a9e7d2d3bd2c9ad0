"""DeleteShareGroupState (api 86): drop the stored state of a share partition.

Made by KIP-932.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, String, Uuid, request, response, w


class PartitionData(Message):
    partition: Int32 = 0


class DeleteStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], w("[]struct")] = field(default_factory=list)


class DeleteShareGroupStateRequest(Message):
    SPEC: ClassVar[Spec] = request(86, "0", "0+", "broker")
    group_id: String = ""
    topics: A[list[DeleteStateData], w("[]struct")] = field(default_factory=list)


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = None


class DeleteStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionResult], w("[]struct")] = field(default_factory=list)


class DeleteShareGroupStateResponse(Message):
    SPEC: ClassVar[Spec] = response(86, "0", "0+")
    results: A[list[DeleteStateResult], w("[]struct")] = field(default_factory=list)
