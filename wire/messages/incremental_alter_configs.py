"""IncrementalAlterConfigs (API 44): set, delete, append to or subtract from settings (KIP-339)."""

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
    """Change of a setting of a resource: set, delete, append or subtract."""

    name: String = ""
    """Name of the setting, such as `retention.ms`. It may occur once in a resource."""
    config_operation: Int8 = 0
    """0 set, 1 delete (return to the default), 2 append to a list, 3 subtract from a list. 2 and 3 only for
    lists of topics and brokers, else INVALID_CONFIG.
    """
    value: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """New value, or elements to append or subtract, separated by commas. Null for a deletion only."""


class AlterConfigsResource(Message):
    """Resource in an IncrementalAlterConfigs request, with the changes of its settings."""

    resource_type: Int8 = 0
    """2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group."""
    resource_name: String = ""
    """Topic name, node id, subscription name or group id. For type 4, empty means the dynamic defaults of all brokers.
    """
    configs: Annotated[list[AlterableConfig], wire_field("[]struct")] = field(default_factory=list)
    """Changes, which apply together or not at all."""


class IncrementalAlterConfigsRequest(Message):
    """Request to change single settings of resources; other settings keep their values."""

    SPEC: ClassVar[MessageSpec] = request(44, "0-1", "1+", "broker controller")
    """Version 1 is flexible.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. Brokers apply dynamic
    settings when they have read the new records; a setting that needs a restart is rejected. Log levels are changed by
    the node that the request is sent to, which must be the resource's name, and are not stored.
    """
    resources: Annotated[list[AlterConfigsResource], wire_field("[]struct")] = field(default_factory=list)
    """Resources to change, each with its own result. A resource may occur once."""
    validate_only: Bool = False
    """True to check the request and change no setting."""


class AlterConfigsResourceResponse(Message):
    """Error code of a resource; 0 if its settings were changed."""

    error_code: Int16 = 0
    """0, or INVALID_CONFIG (unknown name or invalid value), INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION,
    BROKER_ID_NOT_REGISTERED, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    resource_type: Int8 = 0
    """Resource type from the request."""
    resource_name: String = ""
    """Resource name from the request."""


class IncrementalAlterConfigsResponse(Message):
    """Response to IncrementalAlterConfigs: an error code for each resource."""

    SPEC: ClassVar[MessageSpec] = response(44, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    responses: Annotated[list[AlterConfigsResourceResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each resource."""
