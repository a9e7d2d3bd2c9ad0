"""SyncGroup (API 14): distribute the assignment of a new generation, in the classic protocol."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bytes, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class SyncGroupRequestAssignment(Message):
    """Assignment of one member, which the group leader has computed."""

    member_id: String = ""
    """Member id from the JoinGroup response. Members that are left out have an empty assignment."""
    assignment: Bytes = b""
    """Data of the assignment; of consumers a serialized `ConsumerProtocolAssignment`, with its version in the first two
    bytes.
    """


class SyncGroupRequest(Message):
    """Request of a member for its assignment; that of the group leader brings those of all members."""

    SPEC: ClassVar[MessageSpec] = request(14, "0-5", "4+", "broker")
    """Version 3 adds static members (KIP-345), 4 is flexible, 5 adds the protocol type and name (KIP-559). Members of a
    consumer group that use the classic protocol send it as well (KIP-848).

    Flow: All members send it to the coordinator after JoinGroup; the leader includes the assignments it computed. The
    coordinator stores them in `__consumer_offsets` and responds to each member with its own assignment. Heartbeat and
    Fetch follow.

    Errors: UNKNOWN_SERVER_ERROR: The request has more assignments than Ottla accepts.
    """
    group_id: String = ""
    """`group.id` of the consumer. An empty one is rejected with INVALID_GROUP_ID."""
    generation_id: Int32 = 0
    """Generation that the member joined, from its JoinGroup response. Another one than the current generation is
    rejected with ILLEGAL_GENERATION.
    """
    member_id: String = ""
    """Member id from the JoinGroup response. An unknown one is rejected with UNKNOWN_MEMBER_ID."""
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None
    """`group.instance.id` of a static member, null for a dynamic one. If another member id has taken over this
    instance, the request is rejected with FENCED_INSTANCE_ID.
    """
    protocol_type: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Protocol type from the JoinGroup response. Null in version 5, or another one than that of the group, is rejected
    with INCONSISTENT_GROUP_PROTOCOL.
    """
    protocol_name: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Chosen protocol from the JoinGroup response. Null in version 5, or another one than that of the group, is
    rejected with INCONSISTENT_GROUP_PROTOCOL.
    """
    assignments: Annotated[list[SyncGroupRequestAssignment], wire_field("[]struct")] = field(default_factory=list)
    """Assignments of all members, from the leader of the group; empty from the others. In a consumer group they are
    ignored: the coordinator computes them.
    """


class SyncGroupResponse(Message):
    """Assignment of the member, sent when the coordinator has stored those of all members."""

    SPEC: ClassVar[MessageSpec] = response(14, "0-5", "4+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0. REBALANCE_IN_PROGRESS: send JoinGroup again. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID: the membership is lost.
    NOT_COORDINATOR: find the coordinator again. Else FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL,
    COORDINATOR_LOAD_IN_PROGRESS.
    """
    protocol_type: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Protocol type of the group, null with an error."""
    protocol_name: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Protocol that the coordinator has chosen, null with an error."""
    assignment: Bytes = b""
    """Data of the assignment of this member, as the leader sent it. Empty with an error, or if the leader left the
    member out.
    """
