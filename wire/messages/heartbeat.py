"""Heartbeat (API 12): keep a member alive that uses the classic protocol, and learn of a rebalance."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class HeartbeatRequest(Message):
    """Heartbeat of a member that uses the classic protocol, every `heartbeat.interval.ms`."""

    SPEC: ClassVar[MessageSpec] = request(12, "0-4", "4+", "broker")
    """Version 3 adds static members (KIP-345), version 4 is flexible. Members of a consumer group that use the classic
    protocol send it as well (KIP-848).

    Flow: A member sends it to the group coordinator between SyncGroup and the next rebalance. The coordinator restarts
    the session timeout of the member and responds at once. A member without a heartbeat for the session timeout is
    removed, and the group rebalances.
    """
    group_id: String = ""
    """`group.id` of the consumer. An empty one is rejected with INVALID_GROUP_ID."""
    generation_id: Int32 = 0
    """Generation that the member joined, from its JoinGroup response; the member epoch if the group is a consumer
    group. Any other value than the current one is rejected with ILLEGAL_GENERATION.
    """
    member_id: String = ""
    """Id that the coordinator gave the member in its JoinGroup response. The heartbeat restarts the session timeout of
    this member; an unknown id is rejected with UNKNOWN_MEMBER_ID.
    """
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None
    """`group.instance.id` of a static member, null for a dynamic one. If another member id has taken over this
    instance, the request is rejected with FENCED_INSTANCE_ID.
    """


class HeartbeatResponse(Message):
    """Error code of a heartbeat: 0 to stay a member, REBALANCE_IN_PROGRESS to join again."""

    SPEC: ClassVar[MessageSpec] = response(12, "0-4", "4+")
    """From version 2 on, a client enforces the throttle time itself (KIP-219)."""
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0 if the member is current. REBALANCE_IN_PROGRESS: send JoinGroup again. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID:
    the membership is lost. NOT_COORDINATOR: find the coordinator again. While the group is being loaded, the code is 0.
    """
