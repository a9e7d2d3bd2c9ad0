"""IncrementalAlterConfigs (api 44): set, delete, append to or subtract from settings.

Made by KIP-339.
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
    config_operation: Int8 = 0
    value: A[str | None, wire_field("string", nullable="0+")] = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: A[list[AlterableConfig], wire_field("[]struct")] = field(default_factory=list)


class IncrementalAlterConfigsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(44, "0-1", "1+", "broker controller")
    resources: A[list[AlterConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(44, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    responses: A[list[AlterConfigsResourceResponse], wire_field("[]struct")] = field(default_factory=list)
