"""DeleteAcls (api 31): remove access rules.

Made by KIP-140; version 1 brings prefixes (KIP-290).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DeleteAclsFilter(Message):
    resource_type_filter: Int8 = 0
    resource_name_filter: A[str | None, wire_field("string", nullable="0+")] = ""
    pattern_type_filter: A[int, wire_field("int8", "1+")] = 3
    principal_filter: A[str | None, wire_field("string", nullable="0+")] = ""
    host_filter: A[str | None, wire_field("string", nullable="0+")] = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(31, "1-3", "2+", "broker controller")
    filters: A[list[DeleteAclsFilter], wire_field("[]struct")] = field(default_factory=list)


class DeleteAclsMatchingAcl(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: A[int, wire_field("int8", "1+")] = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    matching_acls: A[list[DeleteAclsMatchingAcl], wire_field("[]struct")] = field(default_factory=list)


class DeleteAclsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(31, "1-3", "2+")
    throttle_time_ms: Int32 = 0
    filter_results: A[list[DeleteAclsFilterResult], wire_field("[]struct")] = field(default_factory=list)
