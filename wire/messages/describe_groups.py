"""DescribeGroups (api 15): state and members of classic groups.

Version 3 brings authorized operations (KIP-430), 4 static members (KIP-345), 6 an error for a group that is not there
(KIP-1043).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, String, request, response, wire_field


class DescribeGroupsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(15, "0-6", "5+", "broker")
    groups: A[list[str], wire_field("[]string")] = field(default_factory=list)
    include_authorized_operations: A[bool, wire_field("bool", "3+")] = False


class DescribedGroupMember(Message):
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "4+", nullable="4+", ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", "6+", nullable="6+")] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: A[list[DescribedGroupMember], wire_field("[]struct")] = field(default_factory=list)
    authorized_operations: A[int, wire_field("int32", "3+")] = -2147483648


class DescribeGroupsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(15, "0-6", "5+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    groups: A[list[DescribedGroup], wire_field("[]struct")] = field(default_factory=list)
