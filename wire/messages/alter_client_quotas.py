"""AlterClientQuotas (api 49): change quotas.

Made by KIP-546.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Float64,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class AlterClientQuotasRequestEntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, wire_field("string", nullable="0+")] = ""


class OpData(Message):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class AlterClientQuotasRequestEntryData(Message):
    entity: A[list[AlterClientQuotasRequestEntityData], wire_field("[]struct")] = field(default_factory=list)
    ops: A[list[OpData], wire_field("[]struct")] = field(default_factory=list)


class AlterClientQuotasRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(49, "0-1", "1+", "broker controller")
    entries: A[list[AlterClientQuotasRequestEntryData], wire_field("[]struct")] = field(default_factory=list)
    validate_only: Bool = False


class AlterClientQuotasResponseEntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, wire_field("string", nullable="0+")] = ""


class AlterClientQuotasResponseEntryData(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    entity: A[list[AlterClientQuotasResponseEntityData], wire_field("[]struct")] = field(default_factory=list)


class AlterClientQuotasResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(49, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    entries: A[list[AlterClientQuotasResponseEntryData], wire_field("[]struct")] = field(default_factory=list)
