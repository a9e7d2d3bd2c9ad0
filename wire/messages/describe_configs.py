"""DescribeConfigs (api 32): read the settings of topics, brokers and groups.

Made by KIP-133; version 1 brings where a value comes from (KIP-226), 3 types and descriptions (KIP-569).
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


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: A[list[str] | None, wire_field("[]string", nullable="0+")] = field(default_factory=list)


class DescribeConfigsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(32, "1-4", "4+", "broker controller")
    resources: A[list[DescribeConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    include_synonyms: A[bool, wire_field("bool", "1+")] = False
    include_documentation: A[bool, wire_field("bool", "3+")] = False


class DescribeConfigsSynonym(Message):
    name: A[str, wire_field("string", "1+")] = ""
    value: A[str | None, wire_field("string", "1+", nullable="0+")] = ""
    source: A[int, wire_field("int8", "1+")] = 0


class DescribeConfigsResourceResult(Message):
    name: String = ""
    value: A[str | None, wire_field("string", nullable="0+")] = ""
    read_only: Bool = False
    config_source: A[int, wire_field("int8", "1+", ignorable=True)] = -1
    is_sensitive: Bool = False
    synonyms: A[list[DescribeConfigsSynonym], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )
    config_type: A[int, wire_field("int8", "3+", ignorable=True)] = 0
    documentation: A[str | None, wire_field("string", "3+", nullable="0+", ignorable=True)] = ""


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: A[list[DescribeConfigsResourceResult], wire_field("[]struct")] = field(default_factory=list)


class DescribeConfigsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(32, "1-4", "4+")
    throttle_time_ms: Int32 = 0
    results: A[list[DescribeConfigsResult], wire_field("[]struct")] = field(default_factory=list)
