"""DescribeGroups (API 15): state and members of classic groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, String, request, response, wire_field


class DescribeGroupsRequest(Message):
    """Request to the group coordinator for state and members of classic groups."""

    SPEC: ClassVar[MessageSpec] = request(15, "0-6", "5+", "broker")
    """Version 3 adds authorized operations (KIP-430), 4 static members (KIP-345), 5 is flexible, 6 returns
    GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043).

    Flow: A tool or admin client sends it to the coordinator of each group (`ottla group describe`). The coordinator
    responds from its memory.
    """
    groups: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Ids of the groups, all with the same coordinator. Each has a result of its own."""
    include_authorized_operations: Annotated[bool, wire_field("bool", "3+")] = False
    """True to return the operations on the group that the principal is authorized for."""


class DescribedGroupMember(Message):
    """Member of a described classic group: ids, client, subscription and assignment."""

    member_id: String = ""
    """Id that the coordinator gave the member in JoinGroup."""
    group_instance_id: Annotated[str | None, wire_field("string", "4+", nullable="4+", ignorable=True)] = None
    """`group.instance.id` of a static member, null for a dynamic one."""
    client_id: String = ""
    """`client.id` of the member in its last JoinGroup."""
    client_host: String = ""
    """Address that the member connects from."""
    member_metadata: Bytes = b""
    """Metadata of the member for the chosen protocol, for consumers a `ConsumerProtocolSubscription`. Empty unless the
    group is stable.
    """
    member_assignment: Bytes = b""
    """Last assignment of the member, for consumers a `ConsumerProtocolAssignment`; empty if it has none yet."""


class DescribedGroup(Message):
    """State, protocol and members of a classic group, or its error code."""

    error_code: Int16 = 0
    """0, or GROUP_ID_NOT_FOUND (from version 6 on: no such group, or of another type), GROUP_AUTHORIZATION_FAILED,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    """
    error_message: Annotated[str | None, wire_field("string", "6+", nullable="6+")] = None
    """Text for the error, null if there is none."""
    group_id: String = ""
    """Group id from the request."""
    group_state: String = ""
    """`Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`, or `Dead` for a group that does not exist; empty
    with most errors.
    """
    protocol_type: String = ""
    """`consumer` for consumers, `connect` for Kafka Connect; empty if the group has never had a member."""
    protocol_data: String = ""
    """Name of the chosen protocol, for consumers the client-side assignor. Empty unless the group is stable."""
    members: Annotated[list[DescribedGroupMember], wire_field("[]struct")] = field(default_factory=list)
    """Members of the group."""
    authorized_operations: Annotated[int, wire_field("int32", "3+")] = -2147483648
    """Bits of the authorized operations; -2147483648 if they were not requested."""


class DescribeGroupsResponse(Message):
    """Descriptions of classic groups."""

    SPEC: ClassVar[MessageSpec] = response(15, "0-6", "5+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    groups: Annotated[list[DescribedGroup], wire_field("[]struct")] = field(default_factory=list)
    """Results. A group that occurs twice in the request has one result."""
