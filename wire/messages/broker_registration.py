"""BrokerRegistration (API 62): registration of brokers at the active controller (KIP-631)."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Advertised endpoint of the broker that registers."""

    name: String = ""
    """Listener name, from `advertised.listeners`."""
    host: String = ""
    """Advertised host name or address."""
    port: Uint16 = 0
    """Advertised port."""
    security_protocol: Int16 = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class Feature(Message):
    """Feature such as `metadata.version`, with the range of levels that the broker supports."""

    name: String = ""
    """Feature name, such as `metadata.version`."""
    min_supported_version: Int16 = 0
    """Lowest supported level."""
    max_supported_version: Int16 = 0
    """Highest supported level. The level of the cluster must lie in the range, else the registration is rejected with
    UNSUPPORTED_VERSION.
    """


class BrokerRegistrationRequest(Message):
    """Request of a broker process at its start to register with the active controller."""

    SPEC: ClassVar[MessageSpec] = request(62, "0-4", "0+", "controller")
    """Version 1 adds the migration from ZooKeeper (KIP-866), 2 log directories (KIP-858), 3 the previous broker epoch
    (KIP-966). Version 4 permits 0 as the lowest level of a feature; up to version 3 such features are left out.

    Flow: A broker sends it to the active controller when it starts, and after each change of the controller until one
    accepts it. The controller appends a RegisterBrokerRecord and assigns a broker epoch. The broker stays fenced
    until its heartbeats show that it has applied the metadata.
    """
    broker_id: Int32 = 0
    """Node id of the broker. While another process with this id holds a session, the request is rejected with
    DUPLICATE_BROKER_REGISTRATION.
    """
    cluster_id: String = ""
    """Id of the cluster, from `meta.properties` of the broker. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    incarnation_id: Uuid = ZERO_UUID
    """Random id of the process. The same id again keeps the broker epoch; a new one means a restart."""
    listeners: Annotated[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints that other nodes and clients receive. At most 1,000 are accepted."""
    features: Annotated[list[Feature], wire_field("[]struct")] = field(default_factory=list)
    """Features that the broker supports. One that is finalized in the cluster may not be missing."""
    rack: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`broker.rack`, null if not set. Used to spread replicas."""
    is_migrating_zk_broker: Annotated[bool, wire_field("bool", "1+")] = False
    """False: the migration from ZooKeeper ended with Apache Kafka 3.9. True is rejected with BROKER_ID_NOT_REGISTERED.
    """
    log_dirs: Annotated[list[bytes], wire_field("[]uuid", "2+", ignorable=True)] = field(default_factory=list)
    """Ids of the log directories that are online. An empty list, or an id that occurs twice or belongs to another
    broker, is rejected with INVALID_REGISTRATION.
    """
    previous_broker_epoch: Annotated[int, wire_field("int64", "3+", ignorable=True)] = -1
    """Broker epoch before the last clean shutdown, -1 after an unclean one. If it is not the last one that the
    controller knows, the broker is removed from the eligible leader replicas as well (KIP-966).
    """


class BrokerRegistrationResponse(Message):
    """Broker epoch that the controller has assigned to the broker process, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(62, "0-4", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """0, or DUPLICATE_BROKER_REGISTRATION (retry until the old session ends), INCONSISTENT_CLUSTER_ID,
    UNSUPPORTED_VERSION, INVALID_REGISTRATION, NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED.
    """
    broker_epoch: Int64 = -1
    """Broker epoch: the end of the metadata log before the registration, so that a later one is higher. The broker
    sends it in all requests to the controller. -1 with an error.
    """
