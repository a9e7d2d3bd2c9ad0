"""ControllerRegistration (API 70): registration of controllers at the active controller (KIP-919)."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Endpoint of the controller that registers: listener name, host, port and security protocol."""

    name: String = ""
    """Listener name, from `controller.listener.names`."""
    host: String = ""
    """Advertised host name or address."""
    port: Uint16 = 0
    """Advertised port."""
    security_protocol: Int16 = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class Feature(Message):
    """Feature such as `metadata.version`, with the range of levels that the controller supports."""

    name: String = ""
    """Feature name, such as `metadata.version`."""
    min_supported_version: Int16 = 0
    """Lowest supported level."""
    max_supported_version: Int16 = 0
    """Highest supported level. UpdateFeatures rejects a level that a registered controller does not support."""


class ControllerRegistrationRequest(Message):
    """Request of a controller process to register its endpoints and features at the active controller."""

    SPEC: ClassVar[MessageSpec] = request(70, "0", "0+", "controller")
    """Flow: A controller sends it to the active controller when it starts, and after each change of the active
    controller. The record makes endpoints and features of the controller known to all nodes.
    """
    controller_id: Int32 = 0
    """Node id of the controller."""
    incarnation_id: Uuid = ZERO_UUID
    """Random id of the process. It registers again when the metadata has another id for its node."""
    zk_migration_ready: Bool = False
    """False: the migration from ZooKeeper ended with Apache Kafka 3.9."""
    listeners: Annotated[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints of the controller. At most 1,000 are accepted, else INVALID_REGISTRATION."""
    features: Annotated[list[Feature], wire_field("[]struct")] = field(default_factory=list)
    """Features that the controller supports."""


class ControllerRegistrationResponse(Message):
    """Error code, 0 if the registration was stored in the metadata log."""

    SPEC: ClassVar[MessageSpec] = response(70, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """0, or NOT_CONTROLLER (find the active controller), CLUSTER_AUTHORIZATION_FAILED, INVALID_REGISTRATION."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
