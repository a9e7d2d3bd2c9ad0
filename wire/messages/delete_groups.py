"""DeleteGroups (api 42): delete empty groups.

Made by KIP-229.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DeleteGroupsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(42, "0-2", "2+", "broker")
    groups_names: A[list[str], wire_field("[]string")] = field(default_factory=list)


class DeletableGroupResult(Message):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(42, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[DeletableGroupResult], wire_field("[]struct")] = field(default_factory=list)
