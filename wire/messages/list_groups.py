"""ListGroups (API 16): list the groups that a broker coordinates."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class ListGroupsRequest(Message):
    """Request to a broker for the groups that it coordinates. A complete list needs all brokers."""

    SPEC: ClassVar[MessageSpec] = request(16, "0-5", "3+", "broker")
    """Version 3 is flexible, 4 adds states (KIP-518), 5 adds types (KIP-848).

    Flow: A tool or admin client sends it to all brokers, since each lists the groups that it coordinates.
    """
    states_filter: Annotated[list[str], wire_field("[]string", "4+")] = field(default_factory=list)
    """States of the groups to list, without regard to case, such as `stable`; empty for all. Unknown states match no
    group.
    """
    types_filter: Annotated[list[str], wire_field("[]string", "5+")] = field(default_factory=list)
    """`classic`, `consumer`, `share` or `streams`, without regard to case; empty for all. Unknown types match no group.
    """


class ListedGroup(Message):
    """Group that the responding broker coordinates: id, state and type."""

    group_id: String = ""
    """Id of the listed group."""
    protocol_type: String = ""
    """`consumer` for consumers, `connect` for Kafka Connect, `share` or `streams`; empty for a classic group that has
    never had a member.
    """
    group_state: Annotated[str, wire_field("string", "4+", ignorable=True)] = ""
    """State of the group, such as `Stable` or `Empty`."""
    group_type: Annotated[str, wire_field("string", "5+", ignorable=True)] = ""
    """`classic`, `consumer`, `share` or `streams`."""


class ListGroupsResponse(Message):
    """Groups that the responding broker coordinates and that pass the filters, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(16, "0-5", "3+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__consumer_offsets`."""
    groups: Annotated[list[ListedGroup], wire_field("[]struct")] = field(default_factory=list)
    """Groups that the principal may describe."""
