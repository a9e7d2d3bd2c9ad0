"""LeaveGroup (api 13): leave a classic group.

Version 3 lets several members leave at once (KIP-345), 5 with a reason (KIP-800).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Message, Spec, String, request, response, w


class MemberIdentity(Message):
    member_id: A[str, w("string", "3+")] = ""
    group_instance_id: A[str | None, w("string", "3+", nullable="3+")] = None
    reason: A[str | None, w("string", "5+", nullable="5+", ignorable=True)] = None


class LeaveGroupRequest(Message):
    SPEC: ClassVar[Spec] = request(13, "0-5", "4+", "broker")
    group_id: String = ""
    member_id: A[str, w("string", "0-2")] = ""
    members: A[list[MemberIdentity], w("[]struct", "3+")] = field(default_factory=list)


class MemberResponse(Message):
    member_id: A[str, w("string", "3+")] = ""
    group_instance_id: A[str | None, w("string", "3+", nullable="3+")] = ""
    error_code: A[int, w("int16", "3+")] = 0


class LeaveGroupResponse(Message):
    SPEC: ClassVar[Spec] = response(13, "0-5", "4+")
    throttle_time_ms: A[int, w("int32", "1+", ignorable=True)] = 0
    error_code: Int16 = 0
    members: A[list[MemberResponse], w("[]struct", "3+")] = field(default_factory=list)
