"""JoinGroup (API 11): join a group with the classic protocol and wait for its next generation."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class JoinGroupRequestProtocol(Message):
    """Protocol that a member of a classic group supports: for consumers an assignor, with subscription."""

    name: String = ""
    """Name of the protocol, such as `range`. The coordinator chooses one that all members support, by their votes."""
    metadata: Bytes = b""
    """Data of the member for this protocol, for consumers a `ConsumerProtocolSubscription`. The broker passes it to the
    leader of the group.
    """


class JoinGroupRequest(Message):
    """Request to join a group with the classic protocol, or to join it again in a rebalance."""

    SPEC: ClassVar[MessageSpec] = request(11, "0-9", "6+", "broker")
    """Version 1 adds the rebalance timeout (KIP-62). From version 4 on, a new member receives its id with
    MEMBER_ID_REQUIRED and sends the request again (KIP-394). Version 5 adds static members (KIP-345), 6 is flexible, 7
    returns the protocol type (KIP-559), 8 adds a reason (KIP-800), 9 lets a leader skip the assignment (KIP-814).

    Flow: A member of a classic group sends it to the coordinator, first without a member id and then with the one it
    was given. The coordinator starts a rebalance and responds when all members have joined or the rebalance timeout has
    passed. One member becomes the leader: its response lists the members with their subscriptions. SyncGroup follows.
    """
    group_id: String = ""
    """`group.id` of the consumer. An empty one is rejected with INVALID_GROUP_ID."""
    session_timeout_ms: Int32 = 0
    """Session timeout in ms: a member without heartbeat for so long is removed. Outside of
    `group.min.session.timeout.ms` and `group.max.session.timeout.ms` it is rejected with INVALID_SESSION_TIMEOUT.
    """
    rebalance_timeout_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Time in ms that members have to join again in a rebalance (`max.poll.interval.ms`); the longest of all members
    counts. In version 0 the session timeout.
    """
    member_id: String = ""
    """Id from an earlier response; empty for a new member. An unknown id is rejected with UNKNOWN_MEMBER_ID."""
    group_instance_id: Annotated[str | None, wire_field("string", "5+", nullable="5+")] = None
    """`group.instance.id` of a static member, null for a dynamic one. A new member with the same instance replaces the
    old one, which is then rejected with FENCED_INSTANCE_ID.
    """
    protocol_type: String = ""
    """`consumer` for consumers, `connect` for Kafka Connect. Another type than that of the group is rejected with
    INCONSISTENT_GROUP_PROTOCOL.
    """
    protocols: Annotated[list[JoinGroupRequestProtocol], wire_field("[]struct")] = field(default_factory=list)
    """Protocols that the member supports, the preferred one first. Without one in common with the group, the request is
    rejected with INCONSISTENT_GROUP_PROTOCOL. At most 1,000 are accepted.
    """
    reason: Annotated[str | None, wire_field("string", "8+", nullable="8+", ignorable=True)] = None
    """Reason for joining, null for none. For logs only."""


class JoinGroupResponseMember(Message):
    """Member of the new generation with its metadata, sent only to the leader of the group."""

    member_id: String = ""
    """Id of the member in its group."""
    group_instance_id: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """`group.instance.id` of a static member, null for a dynamic one."""
    metadata: Bytes = b""
    """Data of the member for the chosen protocol."""


class JoinGroupResponse(Message):
    """New generation of a group, in a classic one sent when all members have joined or the time is over."""

    SPEC: ClassVar[MessageSpec] = response(11, "0-9", "6+")
    throttle_time_ms: Annotated[int, wire_field("int32", "2+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0. MEMBER_ID_REQUIRED: join again with the returned id. UNKNOWN_MEMBER_ID: join again without id. Else
    REBALANCE_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    INVALID_SESSION_TIMEOUT, NOT_COORDINATOR.
    """
    generation_id: Int32 = -1
    """Generation that begins, sent in SyncGroup, Heartbeat and OffsetCommit; -1 with an error."""
    protocol_type: Annotated[str | None, wire_field("string", "7+", nullable="7+", ignorable=True)] = None
    """Protocol type of the group, null with an error."""
    protocol_name: Annotated[str | None, wire_field("string", nullable="7+")] = ""
    """Protocol that the coordinator has chosen; empty or null with an error."""
    leader: String = ""
    """Member id of the leader of the group, which computes the assignment and sends it in SyncGroup."""
    skip_assignment: Annotated[bool, wire_field("bool", "9+")] = False
    """True if the leader sends no assignment in SyncGroup: a static leader that has returned to a stable group. Its
    members keep their assignments.
    """
    member_id: String = ""
    """Id of this member. Static members receive a new one at each start."""
    members: Annotated[list[JoinGroupResponseMember], wire_field("[]struct")] = field(default_factory=list)
    """Members with their data, for the leader; empty for all others."""
