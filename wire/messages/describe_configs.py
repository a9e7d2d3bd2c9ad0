"""DescribeConfigs (api 32): read the settings of topics, brokers and groups.

Made by KIP-133; version 1 brings where a value comes from (KIP-226), 3 types and descriptions (KIP-569).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, Spec, String, request, response, w


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: A[list[str] | None, w("[]string", nullable="0+")] = field(default_factory=list)


class DescribeConfigsRequest(Message):
    SPEC: ClassVar[Spec] = request(32, "1-4", "4+", "broker controller")
    resources: A[list[DescribeConfigsResource], w("[]struct")] = field(default_factory=list)
    include_synonyms: A[bool, w("bool", "1+")] = False
    include_documentation: A[bool, w("bool", "3+")] = False


class DescribeConfigsSynonym(Message):
    name: A[str, w("string", "1+")] = ""
    value: A[str | None, w("string", "1+", nullable="0+")] = ""
    source: A[int, w("int8", "1+")] = 0


class DescribeConfigsResourceResult(Message):
    name: String = ""
    value: A[str | None, w("string", nullable="0+")] = ""
    read_only: Bool = False
    config_source: A[int, w("int8", "1+", ignorable=True)] = -1
    is_sensitive: Bool = False
    synonyms: A[list[DescribeConfigsSynonym], w("[]struct", "1+", ignorable=True)] = field(default_factory=list)
    config_type: A[int, w("int8", "3+", ignorable=True)] = 0
    documentation: A[str | None, w("string", "3+", nullable="0+", ignorable=True)] = ""


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: A[list[DescribeConfigsResourceResult], w("[]struct")] = field(default_factory=list)


class DescribeConfigsResponse(Message):
    SPEC: ClassVar[Spec] = response(32, "1-4", "4+")
    throttle_time_ms: Int32 = 0
    results: A[list[DescribeConfigsResult], w("[]struct")] = field(default_factory=list)
