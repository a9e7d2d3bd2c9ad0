"""DescribeClientQuotas (api 48): read quotas.

Made by KIP-546.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Float64,
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


class ComponentData(Message):
    entity_type: String = ""
    match_type: Int8 = 0
    match: A[str | None, wire_field("string", nullable="0+")] = ""


class DescribeClientQuotasRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(48, "0-1", "1+", "broker")
    components: A[list[ComponentData], wire_field("[]struct")] = field(default_factory=list)
    strict: Bool = False


class EntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, wire_field("string", nullable="0+")] = ""


class ValueData(Message):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Message):
    entity: A[list[EntityData], wire_field("[]struct")] = field(default_factory=list)
    values: A[list[ValueData], wire_field("[]struct")] = field(default_factory=list)


class DescribeClientQuotasResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(48, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    entries: A[list[EntryData] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)
