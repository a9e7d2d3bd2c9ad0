"""AlterShareGroupOffsets (API 91): set the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class AlterShareGroupOffsetsRequestPartition(Message):
    """Partition with the new start offset of the share group in it."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    start_offset: Int64 = 0
    """Share-partition start offset: the group receives records from this offset on. The state of all records in flight
    is discarded.
    """


class AlterShareGroupOffsetsRequestTopic(Message):
    """Topic in an AlterShareGroupOffsets request, with the new start offsets of its partitions."""

    topic_name: String = ""
    """Topic name. Needs the right to read the topic."""
    partitions: Annotated[list[AlterShareGroupOffsetsRequestPartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions with their new start offsets."""


class AlterShareGroupOffsetsRequest(Message):
    """Request to set the start offsets of a share group without members."""

    SPEC: ClassVar[MessageSpec] = request(91, "0", "0+", "broker")
    """Flow: An admin client sends it to the group coordinator. The coordinator sets the new start offsets at the share
    coordinator with InitializeShareGroupState.

    Errors: UNSUPPORTED_VERSION: Share groups are disabled by `group.coordinator.rebalance.protocols` or the feature
    `share.version`.
    """
    group_id: String = ""
    """Id of the share group. With members in it, the request is rejected with NON_EMPTY_GROUP."""
    topics: Annotated[list[AlterShareGroupOffsetsRequestTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to change."""


class AlterShareGroupOffsetsResponsePartition(Message):
    """Error code of a partition; 0 if the start offset of the share group was set."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, or the error of the share coordinator that stores
    the state.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class AlterShareGroupOffsetsResponseTopic(Message):
    """Topic in an AlterShareGroupOffsets response, with an error code for each partition."""

    topic_name: String = ""
    """Topic name from the request."""
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic, zero if the topic does not exist."""
    partitions: Annotated[list[AlterShareGroupOffsetsResponsePartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results of the partitions."""


class AlterShareGroupOffsetsResponse(Message):
    """Response to AlterShareGroupOffsets: an error code for each partition, 0 if its offset was set."""

    SPEC: ClassVar[MessageSpec] = response(91, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS or INVALID_GROUP_ID. 0 if the partitions have their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the whole request, null if there is none."""
    responses: Annotated[list[AlterShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results by topic. Empty if the whole request failed."""
