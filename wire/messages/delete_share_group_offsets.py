"""DeleteShareGroupOffsets (api 92): forget start offsets of share groups.

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
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(92, "0", "0+", "broker")
    group_id: String = ""
    topics: A[list[DeleteShareGroupOffsetsRequestTopic], wire_field("[]struct")] = field(default_factory=list)


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None


class DeleteShareGroupOffsetsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(92, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    responses: A[list[DeleteShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(default_factory=list)
