"""ListConfigResources (api 74): which resources have settings.

Made by KIP-714 for client metrics; version 1 lists all kinds (KIP-1142).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ListConfigResourcesRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(74, "0-1", "0+", "broker")
    resource_types: A[list[int], wire_field("[]int8", "1+")] = field(default_factory=list)


class ConfigResource(Message):
    resource_name: String = ""
    resource_type: A[int, wire_field("int8", "1+", ignorable=True)] = 16


class ListConfigResourcesResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(74, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: A[list[ConfigResource], wire_field("[]struct")] = field(default_factory=list)
