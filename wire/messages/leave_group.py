"""LeaveGroup (API 13): leave a group that was joined with the classic protocol, or remove members."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class MemberIdentity(Message):
    """Member to remove in a LeaveGroup request (version 3 on): member id and instance id."""

    member_id: Annotated[str, wire_field("string", "3+")] = ""
    """Id of the member in its group; empty to remove a static member by its instance alone."""
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None
    """`group.instance.id` of a static member, null for a dynamic one."""
    reason: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Reason for leaving, null for none. For logs only."""


class LeaveGroupRequest(Message):
    """Request of a member that leaves (classic protocol), or of an administrator that removes members."""

    SPEC: ClassVar[MessageSpec] = request(13, "0-5", "4+", "broker")
    """Version 3 takes several members, static ones as well (KIP-345), 4 is flexible, 5 adds a reason (KIP-800).

    Flow: A dynamic member sends it when it closes; the group rebalances at once instead of after the session timeout.
    An operator removes static members with it.
    """
    group_id: String = ""
    """`group.id` of the consumer."""
    member_id: Annotated[str, wire_field("string", "0-2")] = ""
    """Id of the member that leaves, up to version 2."""
    members: Annotated[list[MemberIdentity], wire_field("[]struct", "3+")] = field(default_factory=list)
    """Members to remove, from version 3 on."""


class MemberResponse(Message):
    """Error code of a member in the request (version 3 on); 0 if it was removed."""

    member_id: Annotated[str, wire_field("string", "3+")] = ""
    """Member id from the request."""
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = ""
    """Instance id from the request, null for a dynamic member."""
    error_code: Annotated[int, wire_field("int16", "3+")] = 0
    """0, or UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member id has taken over the instance."""


class LeaveGroupResponse(Message):
    """Response to LeaveGroup: an error code for each member. A rebalance follows if one was removed."""

    SPEC: ClassVar[MessageSpec] = response(13, "0-5", "4+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID,
    GROUP_AUTHORIZATION_FAILED; up to version 2 also that of the member. 0 if the members have their own.
    """
    members: Annotated[list[MemberResponse], wire_field("[]struct", "3+")] = field(default_factory=list)
    """Results, one for each member, from version 3 on."""
