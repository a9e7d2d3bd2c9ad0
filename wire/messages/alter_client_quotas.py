"""AlterClientQuotas (api 49): change quotas.

Made by KIP-546.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Bool, Float64, Int16, Int32, Message, Spec, String, request, response, w


class AlterClientQuotasRequestEntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, w("string", nullable="0+")] = ""


class OpData(Message):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class AlterClientQuotasRequestEntryData(Message):
    entity: A[list[AlterClientQuotasRequestEntityData], w("[]struct")] = field(default_factory=list)
    ops: A[list[OpData], w("[]struct")] = field(default_factory=list)


class AlterClientQuotasRequest(Message):
    SPEC: ClassVar[Spec] = request(49, "0-1", "1+", "broker controller")
    entries: A[list[AlterClientQuotasRequestEntryData], w("[]struct")] = field(default_factory=list)
    validate_only: Bool = False


class AlterClientQuotasResponseEntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, w("string", nullable="0+")] = ""


class AlterClientQuotasResponseEntryData(Message):
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    entity: A[list[AlterClientQuotasResponseEntityData], w("[]struct")] = field(default_factory=list)


class AlterClientQuotasResponse(Message):
    SPEC: ClassVar[Spec] = response(49, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    entries: A[list[AlterClientQuotasResponseEntryData], w("[]struct")] = field(default_factory=list)
