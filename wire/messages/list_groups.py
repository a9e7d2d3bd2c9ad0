"""ListGroups (api 16): which groups a broker coordinates.

Version 4 brings states (KIP-518), 5 types (KIP-848).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class ListGroupsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(16, "0-5", "3+", "broker")
    states_filter: A[list[str], wire_field("[]string", "4+")] = field(default_factory=list)
    types_filter: A[list[str], wire_field("[]string", "5+")] = field(default_factory=list)


class ListedGroup(Message):
    group_id: String = ""
    protocol_type: String = ""
    group_state: A[str, wire_field("string", "4+", ignorable=True)] = ""
    group_type: A[str, wire_field("string", "5+", ignorable=True)] = ""


class ListGroupsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(16, "0-5", "3+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
    groups: A[list[ListedGroup], wire_field("[]struct")] = field(default_factory=list)
