"""AlterClientQuotas (API 49): set and remove client quotas (KIP-546)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Float64,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class AlterClientQuotasRequestEntityData(Message):
    """Part of the quota entity to change: entity type (user, client id or IP address) and name."""

    entity_type: String = ""
    """`user`, `client-id` or `ip`. User and client id may be combined; an IP address stands alone. Each type may occur
    once.
    """
    entity_name: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal name, client id or IP address; null for the default of this type. An empty name is rejected."""


class OpData(Message):
    """Change of a quota of the entity in an AlterClientQuotas request: value to set, or removal."""

    key: String = ""
    """`producer_byte_rate`, `consumer_byte_rate`, `request_percentage` or `controller_mutation_rate`; for an IP address
    `connection_creation_rate`.
    """
    value: Float64 = 0.0
    """New limit, above 0: bytes/s, percent of a request handler thread, or partition changes or connections per second.
    Only `request_percentage` may have a fraction. Ignored for a removal.
    """
    remove: Bool = False
    """True to remove the quota, so that the next default applies; no error if it is not set. False to set `value`."""


class AlterClientQuotasRequestEntryData(Message):
    """Quota entity with the changes of its quotas. They apply together or not at all."""

    entity: Annotated[list[AlterClientQuotasRequestEntityData], wire_field("[]struct")] = field(default_factory=list)
    """Parts of the entity, such as a user and a client id."""
    ops: Annotated[list[OpData], wire_field("[]struct")] = field(default_factory=list)
    """Quotas to set or remove. A key that occurs twice is rejected."""


class AlterClientQuotasRequest(Message):
    """Request to set or remove quotas of quota entities."""

    SPEC: ClassVar[MessageSpec] = request(49, "0-1", "1+", "broker controller")
    """Version 1 is flexible.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. Brokers apply the new
    limits when they have read the records.
    """
    entries: Annotated[list[AlterClientQuotasRequestEntryData], wire_field("[]struct")] = field(default_factory=list)
    """Entities to change, each with its own result."""
    validate_only: Bool = False
    """True to check the request and change no quota."""


class AlterClientQuotasResponseEntityData(Message):
    """Part of a quota entity in an AlterClientQuotas response, as in the request: type and name."""

    entity_type: String = ""
    """`user`, `client-id` or `ip`."""
    entity_name: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal name, client id or IP address; null for the default of this type."""


class AlterClientQuotasResponseEntryData(Message):
    """Error code of a quota entity of the request; 0 if its quotas were changed."""

    error_code: Int16 = 0
    """0, or INVALID_REQUEST for an unknown entity type or key, a value out of range or an entity that occurs twice
    (its first entry takes effect).
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    entity: Annotated[list[AlterClientQuotasResponseEntityData], wire_field("[]struct")] = field(default_factory=list)
    """Parts of the entity, to match the result with the request."""


class AlterClientQuotasResponse(Message):
    """Response to AlterClientQuotas: an error code for each quota entity, 0 if its quotas were changed."""

    SPEC: ClassVar[MessageSpec] = response(49, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    entries: Annotated[list[AlterClientQuotasResponseEntryData], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each entity."""
