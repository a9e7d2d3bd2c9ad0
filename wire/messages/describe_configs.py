"""DescribeConfigs (API 32): read the settings of topics, brokers, groups and client metrics (KIP-133)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
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


class DescribeConfigsResource(Message):
    """Resource (topic, broker, group and others) in a request, with the names of the settings to return."""

    resource_type: Int8 = 0
    """2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group. Any other one fails the whole request."""
    resource_name: String = ""
    """Topic name, node id, subscription name or group id. For type 4, empty means the dynamic defaults of all brokers;
    a node id must be that of the receiver.
    """
    configuration_keys: Annotated[list[str] | None, wire_field("[]string", nullable="0+")] = field(default_factory=list)
    """Names of the settings to return; null or empty for all."""


class DescribeConfigsRequest(Message):
    """Request for the effective settings of resources such as topics and brokers."""

    SPEC: ClassVar[MessageSpec] = request(32, "1-4", "4+", "broker controller")
    """Version 1 adds the source of values and synonyms (KIP-226), 3 adds types and documentation (KIP-569), 4 is
    flexible. Version 0 was removed in Apache Kafka 4.0.

    Flow: An admin client sends it to any broker; for the settings of a broker to that broker, because its configuration
    file is not in the metadata.
    """
    resources: Annotated[list[DescribeConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    """Resources to read, each with its own result."""
    include_synonyms: Annotated[bool, wire_field("bool", "1+")] = False
    """True to return all places that a value could come from, in order of precedence."""
    include_documentation: Annotated[bool, wire_field("bool", "3+")] = False
    """True to return the documentation of each setting."""


class DescribeConfigsSynonym(Message):
    """Setting and level that the value of the described setting could come from, with its value there."""

    name: Annotated[str, wire_field("string", "1+")] = ""
    """Name of the setting there, such as `log.retention.ms` for `retention.ms`."""
    value: Annotated[str | None, wire_field("string", "1+", nullable="0+")] = ""
    """Value there; null if it is sensitive."""
    source: Annotated[int, wire_field("int8", "1+")] = 0
    """Origin, numbered as `config_source`."""


class DescribeConfigsResourceResult(Message):
    """Setting of a resource, with its effective value and the source of the value."""

    name: String = ""
    """Name of the setting."""
    value: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Effective value as text; null if it is sensitive, or not set and without a default."""
    read_only: Bool = False
    """True if the setting can only be changed in the configuration file."""
    config_source: Annotated[int, wire_field("int8", "1+", ignorable=True)] = -1
    """Origin of the value: 1 topic, 2 this broker (dynamic), 3 all brokers (dynamic), 4 configuration file, 5 default,
    6 logger, 7 client metrics, 8 group. -1 if unknown.
    """
    is_sensitive: Bool = False
    """True if the value is a secret, or could be one: passwords, and settings of unknown type."""
    synonyms: Annotated[list[DescribeConfigsSynonym], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )
    """Places that the value could come from, the effective one first. Empty if not requested."""
    config_type: Annotated[int, wire_field("int8", "3+", ignorable=True)] = 0
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password; 0 if unknown."""
    documentation: Annotated[str | None, wire_field("string", "3+", nullable="0+", ignorable=True)] = ""
    """Documentation of the setting; null if not requested."""


class DescribeConfigsResult(Message):
    """Resource of the request with its settings, or its error code."""

    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another broker's id),
    TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error; empty or null if there is none."""
    resource_type: Int8 = 0
    """Resource type from the request."""
    resource_name: String = ""
    """Resource name from the request."""
    configs: Annotated[list[DescribeConfigsResourceResult], wire_field("[]struct")] = field(default_factory=list)
    """Settings of the resource; empty with an error."""


class DescribeConfigsResponse(Message):
    """Response to DescribeConfigs: the settings of each resource, or its error code."""

    SPEC: ClassVar[MessageSpec] = response(32, "1-4", "4+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[DescribeConfigsResult], wire_field("[]struct")] = field(default_factory=list)
    """Results. A resource that occurs twice in the request has one result."""
