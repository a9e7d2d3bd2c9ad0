"""JoinGroup (api 11): enter a classic group and wait for its next generation.

From version 4 on a new member is given its id first (KIP-394); 5 brings static members (KIP-345), 7 the protocol's
type (KIP-559), 8 a reason (KIP-800), 9 a leader that need not assign (KIP-814).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class JoinGroupRequestProtocol(Message):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(11, "0-9", "6+", "broker")
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "5+", nullable="5+")] = None
    protocol_type: String = ""
    protocols: A[list[JoinGroupRequestProtocol], wire_field("[]struct")] = field(default_factory=list)
    reason: A[str | None, wire_field("string", "8+", nullable="8+", ignorable=True)] = None


class JoinGroupResponseMember(Message):
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(11, "0-9", "6+")
    throttle_time_ms: A[int, wire_field("int32", "2+", ignorable=True)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: A[str | None, wire_field("string", "7+", nullable="7+", ignorable=True)] = None
    protocol_name: A[str | None, wire_field("string", nullable="7+")] = ""
    leader: String = ""
    skip_assignment: A[bool, wire_field("bool", "9+")] = False
    member_id: String = ""
    members: A[list[JoinGroupResponseMember], wire_field("[]struct")] = field(default_factory=list)
