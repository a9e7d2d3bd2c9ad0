"""AlterConfigs (api 33): replace settings as a whole (the older form).

Made by KIP-133; IncrementalAlterConfigs takes its place (KIP-339).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class AlterableConfig(Message):
    name: String = ""
    value: A[str | None, wire_field("string", nullable="0+")] = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: A[list[AlterableConfig], wire_field("[]struct")] = field(default_factory=list)


class AlterConfigsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(33, "0-2", "2+", "broker controller")
    resources: A[list[AlterConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(33, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    responses: A[list[AlterConfigsResourceResponse], wire_field("[]struct")] = field(default_factory=list)
