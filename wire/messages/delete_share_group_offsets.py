"""DeleteShareGroupOffsets (API 92): remove topics from an empty share group (KIP-932)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class DeleteShareGroupOffsetsRequestTopic(Message):
    """Name of a topic for which the offsets of the share group are to be deleted."""

    topic_name: String = ""
    """Name of the topic. Needs the right to read it."""


class DeleteShareGroupOffsetsRequest(Message):
    """Request to the group coordinator to delete offsets of a share group that has no members."""

    SPEC: ClassVar[MessageSpec] = request(92, "0", "0+", "broker")
    """Flow: An admin client sends it to the group coordinator. The coordinator deletes the state at the share
    coordinator.

    Errors: UNSUPPORTED_VERSION: Share groups are disabled by `group.coordinator.rebalance.protocols` or the feature
    `share.version`.
    """
    group_id: String = ""
    """Id of the share group. With members in it, the request is rejected with NON_EMPTY_GROUP."""
    topics: Annotated[list[DeleteShareGroupOffsetsRequestTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics to remove. All their partitions lose their state."""


class DeleteShareGroupOffsetsResponseTopic(Message):
    """Error code of a topic; 0 if the offsets of the share group in it were deleted."""

    topic_name: String = ""
    """Topic name from the request."""
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic; zero if the group has no state of it."""
    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION (no such topic, or no state of it in the group), TOPIC_AUTHORIZATION_FAILED, or
    the error of the share coordinator.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class DeleteShareGroupOffsetsResponse(Message):
    """Response to DeleteShareGroupOffsets: an error code for each topic."""

    SPEC: ClassVar[MessageSpec] = response(92, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS or INVALID_GROUP_ID. 0 if the topics have their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the whole request, null if there is none."""
    responses: Annotated[list[DeleteShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results, one for each topic. Empty if the whole request failed."""
