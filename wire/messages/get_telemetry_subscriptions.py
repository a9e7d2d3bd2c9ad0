"""GetTelemetrySubscriptions (api 71): which metrics a client shall push.

Made by KIP-714.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
    wire_field,
)


class GetTelemetrySubscriptionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(71, "0", "0+", "broker")
    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(71, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: A[list[int], wire_field("[]int8")] = field(default_factory=list)
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: A[list[str], wire_field("[]string")] = field(default_factory=list)
