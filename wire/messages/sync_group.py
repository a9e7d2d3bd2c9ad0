"""SyncGroup (api 14): hand out, or wait for, a generation's assignment.

Version 3 brings static members (KIP-345), 5 the protocol's type and name (KIP-559).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class SyncGroupRequestAssignment(Message):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(14, "0-5", "4+", "broker")
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+")] = None
    protocol_type: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    protocol_name: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    assignments: A[list[SyncGroupRequestAssignment], wire_field("[]struct")] = field(default_factory=list)


class SyncGroupResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(14, "0-5", "4+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
    protocol_type: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    protocol_name: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    assignment: Bytes = b""
