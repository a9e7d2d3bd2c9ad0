"""Heartbeat (api 12): stay in a classic group.

Version 3 brings static members (KIP-345).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class HeartbeatRequest(Message):
    SPEC: ClassVar[Spec] = request(12, "0-4", "4+", "broker")
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: A[str | None, w("string", "3+", nullable="3+")] = None


class HeartbeatResponse(Message):
    SPEC: ClassVar[Spec] = response(12, "0-4", "4+")
    throttle_time_ms: A[int, w("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
