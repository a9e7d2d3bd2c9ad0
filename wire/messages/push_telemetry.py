"""PushTelemetry (api 72): a client's metrics.

Made by KIP-714.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
)


class PushTelemetryRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(72, "0", "0+", "broker")
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(72, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
