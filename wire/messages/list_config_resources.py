"""ListConfigResources (API 74): list resources that have settings (KIP-1142)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ListConfigResourcesRequest(Message):
    """Request for all topics and brokers, and for groups and client metrics with settings, by type."""

    SPEC: ClassVar[MessageSpec] = request(74, "0-1", "0+", "broker")
    """Version 0, as ListClientMetricsResources, lists client metrics subscriptions only (KIP-714). Version 1 lists all
    types (KIP-1142).

    Flow: An admin client sends it to any broker, which responds from its copy of the metadata.
    """
    resource_types: Annotated[list[int], wire_field("[]int8", "1+")] = field(default_factory=list)
    """2 topics, 4 brokers, 8 loggers of brokers, 16 client metrics, 32 groups; empty for all. Another one is rejected
    with UNSUPPORTED_VERSION.
    """


class ConfigResource(Message):
    """Resource in a ListConfigResources response: type (topic, broker, group and others) and name."""

    resource_name: String = ""
    """Topic name, node id, subscription name or group id. Groups are listed only if they have settings."""
    resource_type: Annotated[int, wire_field("int8", "1+", ignorable=True)] = 16
    """2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group."""


class ListConfigResourcesResponse(Message):
    """Types and names of the resources of the requested types, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(74, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or UNSUPPORTED_VERSION, CLUSTER_AUTHORIZATION_FAILED."""
    config_resources: Annotated[list[ConfigResource], wire_field("[]struct")] = field(default_factory=list)
    """Resources, by type and name."""
