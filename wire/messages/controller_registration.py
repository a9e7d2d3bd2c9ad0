"""ControllerRegistration (api 70): a controller announces itself to the active one.

Made by KIP-919.
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
    String,
    Uint16,
    Uuid,
    request,
    response,
    wire_field,
)


class Listener(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class Feature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ControllerRegistrationRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(70, "0", "0+", "controller")
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    listeners: A[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    features: A[list[Feature], wire_field("[]struct")] = field(default_factory=list)


class ControllerRegistrationResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(70, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
