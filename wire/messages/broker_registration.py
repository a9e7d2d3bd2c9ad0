"""BrokerRegistration (api 62): a broker announces itself to the controller.

Made by KIP-631; version 2 brings directories (KIP-858), 3 the epoch before (KIP-966).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
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


class BrokerRegistrationRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(62, "0-4", "0+", "controller")
    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: A[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    features: A[list[Feature], wire_field("[]struct")] = field(default_factory=list)
    rack: A[str | None, wire_field("string", nullable="0+")] = ""
    is_migrating_zk_broker: A[bool, wire_field("bool", "1+")] = False
    log_dirs: A[list[bytes], wire_field("[]uuid", "2+", ignorable=True)] = field(default_factory=list)
    previous_broker_epoch: A[int, wire_field("int64", "3+", ignorable=True)] = -1


class BrokerRegistrationResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(62, "0-4", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
