"""DeleteGroups (api 42): delete empty groups.

Made by KIP-229.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class DeleteGroupsRequest(Message):
    SPEC: ClassVar[Spec] = request(42, "0-2", "2+", "broker")
    groups_names: A[list[str], w("[]string")] = field(default_factory=list)


class DeletableGroupResult(Message):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    SPEC: ClassVar[Spec] = response(42, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[DeletableGroupResult], w("[]struct")] = field(default_factory=list)
