"""DescribeClientQuotas (API 48): list client quotas (KIP-546)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Float64,
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


class ComponentData(Message):
    """Filter on one entity type (user, client id or IP address) of a quota entity."""

    entity_type: String = ""
    """`user`, `client-id` or `ip`. Another one is rejected with UNSUPPORTED_VERSION; a type may occur once."""
    match_type: Int8 = 0
    """0 the name in `match`, 1 the default of this type, 2 any name or default of this type."""
    match: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal name, client id or IP address for match type 0; null for the other types."""


class DescribeClientQuotasRequest(Message):
    """Request for the quotas of the quota entities that meet all conditions."""

    SPEC: ClassVar[MessageSpec] = request(48, "0-1", "1+", "broker")
    """Version 1 is flexible.

    Flow: An admin client sends it to any broker, which responds from its copy of the metadata.
    """
    components: Annotated[list[ComponentData], wire_field("[]struct")] = field(default_factory=list)
    """Conditions; without any, all entities match unless `strict` is set."""
    strict: Bool = False
    """True to leave out entities with a type that has no condition."""


class EntityData(Message):
    """Part of a quota entity in a response: entity type (user, client id or IP address) and name."""

    entity_type: String = ""
    """`user`, `client-id` or `ip`."""
    entity_name: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal name, client id or IP address; null for the default of this type."""


class ValueData(Message):
    """Quota of a quota entity: key such as `producer_byte_rate`, and limit."""

    key: String = ""
    """`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, `controller_mutation_rate` or
    `connection_creation_rate`.
    """
    value: Float64 = 0.0
    """Limit: bytes/s, percent of a request handler thread, or partition changes or connections per second."""


class EntryData(Message):
    """Quota entity in a DescribeClientQuotas response, with the quotas set for it."""

    entity: Annotated[list[EntityData], wire_field("[]struct")] = field(default_factory=list)
    """Parts of the entity, such as a user and a client id."""
    values: Annotated[list[ValueData], wire_field("[]struct")] = field(default_factory=list)
    """Quotas that are set for this entity."""


class DescribeClientQuotasResponse(Message):
    """Quota entities that meet the conditions, each with its quotas; or an error code."""

    SPEC: ClassVar[MessageSpec] = response(48, "0-1", "1+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or INVALID_REQUEST, UNSUPPORTED_VERSION (unknown entity type), CLUSTER_AUTHORIZATION_FAILED."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    entries: Annotated[list[EntryData] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)
    """Entities with their quotas; null with an error."""
