"""DeleteGroups (API 42): delete groups without members, with their committed offsets (KIP-229)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DeleteGroupsRequest(Message):
    """Request to the group coordinator to delete groups, which may be of any type."""

    SPEC: ClassVar[MessageSpec] = request(42, "0-2", "2+", "broker")
    """From version 1 on, a broker responds at once if a quota is exceeded and then reads no further request for the
    throttle time; before, it delays the response (KIP-219). Version 2 is flexible.

    Flow: An admin client sends it to the coordinator of each group. The coordinator appends tombstones for the group
    and its offsets to `__consumer_offsets`. For a share group, it first deletes the share state of the partitions with
    DeleteShareGroupState.
    """
    groups_names: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Ids of the groups, all with the same coordinator."""


class DeletableGroupResult(Message):
    """Error code of a group id; 0 if the group was deleted."""

    group_id: String = ""
    """Group id from the request."""
    error_code: Int16 = 0
    """0, or NON_EMPTY_GROUP (stop its members first), GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE. For a share group also an error of the deletion of its
    share state.
    """


class DeleteGroupsResponse(Message):
    """Response to DeleteGroups: an error code for each group id, 0 if the group was deleted."""

    SPEC: ClassVar[MessageSpec] = response(42, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[DeletableGroupResult], wire_field("[]struct")] = field(default_factory=list)
    """Results. A group that occurs twice in the request has one result."""
