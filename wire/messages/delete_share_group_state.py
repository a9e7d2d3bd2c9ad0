"""DeleteShareGroupState (API 86): delete the state of share-partitions at the share coordinator (KIP-932)."""

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


class PartitionData(Message):
    """Partition of a share group of which the share coordinator is to delete the state."""

    partition: Int32 = 0
    """Index of the partition in its topic."""


class DeleteStateData(Message):
    """Topic id in a DeleteShareGroupState request, with the partitions of which to delete the state."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with state to delete."""


class DeleteShareGroupStateRequest(Message):
    """Request of a group coordinator to the share coordinator to delete states of a share group."""

    SPEC: ClassVar[MessageSpec] = request(86, "0", "0+", "broker")
    """Flow: The group coordinator sends it to the share coordinator when a share group or its offsets are deleted."""
    group_id: String = ""
    """Id of the share group."""
    topics: Annotated[list[DeleteStateData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions for which to delete the state."""


class PartitionResult(Message):
    """Error code of a share-partition; 0 if its state was deleted."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, also if there is no state. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS: retry.
    Else UNKNOWN_TOPIC_OR_PARTITION or INVALID_REQUEST.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class DeleteStateResult(Message):
    """Topic id in a DeleteShareGroupState response, with an error code for each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class DeleteShareGroupStateResponse(Message):
    """Response to DeleteShareGroupState: an error code for each share-partition."""

    SPEC: ClassVar[MessageSpec] = response(86, "0", "0+")
    results: Annotated[list[DeleteStateResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
