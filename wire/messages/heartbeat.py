"""Heartbeat (api 12): stay in a classic group.

Version 3 brings static members (KIP-345).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class HeartbeatRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(12, "0-4", "4+", "broker")
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+")] = None


class HeartbeatResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(12, "0-4", "4+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
