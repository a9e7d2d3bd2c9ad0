"""OffsetDelete (api 47): forget a group's positions for some partitions.

Made by KIP-496.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message):
    name: String = ""
    partitions: A[list[OffsetDeleteRequestPartition], wire_field("[]struct")] = field(default_factory=list)


class OffsetDeleteRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(47, "0", "none", "broker")
    group_id: String = ""
    topics: A[list[OffsetDeleteRequestTopic], wire_field("[]struct")] = field(default_factory=list)


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: String = ""
    partitions: A[list[OffsetDeleteResponsePartition], wire_field("[]struct")] = field(default_factory=list)


class OffsetDeleteResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(47, "0", "none")
    error_code: Int16 = 0
    throttle_time_ms: A[int, wire_field("int32", ignorable=True)] = 0
    topics: A[list[OffsetDeleteResponseTopic], wire_field("[]struct")] = field(default_factory=list)
