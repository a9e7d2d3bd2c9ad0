"""AlterConfigs (API 33): replace all settings of a resource (KIP-133); superseded by IncrementalAlterConfigs."""

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


class AlterableConfig(Message):
    """Setting of a resource in an AlterConfigs request: name and new value."""

    name: String = ""
    """Name of the setting, such as `retention.ms`."""
    value: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """New value as text. Null is rejected with INVALID_REQUEST."""


class AlterConfigsResource(Message):
    """Resource with the dynamic settings that it has after AlterConfigs; those left out are removed."""

    resource_type: Int8 = 0
    """2 topic, 4 broker, 16 client metrics, 32 group. 8, the loggers of a broker, can be changed with
    IncrementalAlterConfigs only.
    """
    resource_name: String = ""
    """Topic name, node id, name of a client metrics subscription, or group id. For type 4, empty means the dynamic
    defaults of all brokers.
    """
    configs: Annotated[list[AlterableConfig], wire_field("[]struct")] = field(default_factory=list)
    """All dynamic settings of the resource. The dynamic value of a setting that is not in the list is removed; then the
    next level applies, such as the value for all brokers or in the configuration file.
    """


class AlterConfigsRequest(Message):
    """Request to replace all dynamic settings of resources."""

    SPEC: ClassVar[MessageSpec] = request(33, "0-2", "2+", "broker controller")
    """From version 1 on, a broker responds at once if a quota is exceeded and then reads no further request for the
    throttle time; before, it delays the response (KIP-219). Version 2 is flexible.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. All dynamic settings that
    the request leaves out are removed; IncrementalAlterConfigs avoids that.
    """
    resources: Annotated[list[AlterConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    """Resources to change. Each is changed as a whole or not at all, and may occur once."""
    validate_only: Bool = False
    """True to check the request and change no setting."""


class AlterConfigsResourceResponse(Message):
    """Error code of a resource; 0 if its settings were replaced."""

    error_code: Int16 = 0
    """0, or INVALID_CONFIG (unknown name or invalid value), INVALID_REQUEST (unknown resource type, or a resource or
    setting that is named twice), UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    resource_type: Int8 = 0
    """Resource type from the request."""
    resource_name: String = ""
    """Resource name from the request."""


class AlterConfigsResponse(Message):
    """Response to AlterConfigs: an error code for each resource, 0 if its settings were replaced."""

    SPEC: ClassVar[MessageSpec] = response(33, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    responses: Annotated[list[AlterConfigsResourceResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each resource."""
