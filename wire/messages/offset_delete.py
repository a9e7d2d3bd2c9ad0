"""OffsetDelete (api 47): forget a group's positions for some partitions.

Made by KIP-496.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message):
    name: String = ""
    partitions: A[list[OffsetDeleteRequestPartition], w("[]struct")] = field(default_factory=list)


class OffsetDeleteRequest(Message):
    SPEC: ClassVar[Spec] = request(47, "0", "none", "broker")
    group_id: String = ""
    topics: A[list[OffsetDeleteRequestTopic], w("[]struct")] = field(default_factory=list)


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: String = ""
    partitions: A[list[OffsetDeleteResponsePartition], w("[]struct")] = field(default_factory=list)


class OffsetDeleteResponse(Message):
    SPEC: ClassVar[Spec] = response(47, "0", "none")
    error_code: Int16 = 0
    throttle_time_ms: A[int, w("int32", ignorable=True)] = 0
    topics: A[list[OffsetDeleteResponseTopic], w("[]struct")] = field(default_factory=list)
