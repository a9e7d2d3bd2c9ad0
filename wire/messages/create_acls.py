"""CreateAcls (api 30): add access rules.

Made by KIP-140; version 1 brings prefixes (KIP-290).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AclCreation(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: A[int, wire_field("int8", "1+")] = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(30, "1-3", "2+", "broker controller")
    creations: A[list[AclCreation], wire_field("[]struct")] = field(default_factory=list)


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""


class CreateAclsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(30, "1-3", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[AclCreationResult], wire_field("[]struct")] = field(default_factory=list)
