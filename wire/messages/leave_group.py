"""LeaveGroup (api 13): leave a classic group.

Version 3 lets several members leave at once (KIP-345), 5 with a reason (KIP-800).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class MemberIdentity(Message):
    member_id: A[str, wire_field("string", "3+")] = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+")] = None
    reason: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None


class LeaveGroupRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(13, "0-5", "4+", "broker")
    group_id: String = ""
    member_id: A[str, wire_field("string", "0-2")] = ""
    members: A[list[MemberIdentity], wire_field("[]struct", "3+")] = field(default_factory=list)


class MemberResponse(Message):
    member_id: A[str, wire_field("string", "3+")] = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+")] = ""
    error_code: A[int, wire_field("int16", "3+")] = 0


class LeaveGroupResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(13, "0-5", "4+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
    members: A[list[MemberResponse], wire_field("[]struct", "3+")] = field(default_factory=list)
