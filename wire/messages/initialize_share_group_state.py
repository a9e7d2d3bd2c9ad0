"""InitializeShareGroupState (API 83): create the state of share-partitions at the share coordinator (KIP-932)."""

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


class PartitionData(Message):
    """Share-partition to create state for: partition index, state epoch and start offset."""

    partition: Int32 = 0
    """Index of the partition in its topic. A negative one is rejected with INVALID_REQUEST."""
    state_epoch: Int32 = 0
    """Epoch of the state; the group coordinator raises it each time it creates the state again. A lower one than the
    stored one is rejected with FENCED_STATE_EPOCH.
    """
    start_offset: Int64 = 0
    """Share-partition start offset, -1 to let the share-partition leader choose it by `share.auto.offset.reset`."""


class InitializeStateData(Message):
    """Topic id in an InitializeShareGroupState request, with the partitions to create state for."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with their initial state."""


class InitializeShareGroupStateRequest(Message):
    """Request of a group coordinator to the share coordinator to create state of a share group."""

    SPEC: ClassVar[MessageSpec] = request(83, "0", "0+", "broker")
    """Flow: The group coordinator sends it to the share coordinator when a share group gets a new partition. The share
    coordinator appends a ShareSnapshot record to `__share_group_state`.
    """
    group_id: String = ""
    """Id of the share group."""
    topics: Annotated[list[InitializeStateData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions for which to create a state."""


class PartitionResult(Message):
    """Error code of a share-partition; 0 if its state was created."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE
    and COORDINATOR_LOAD_IN_PROGRESS: retry.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class InitializeStateResult(Message):
    """Topic id in an InitializeShareGroupState response, with an error code for each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class InitializeShareGroupStateResponse(Message):
    """Response to InitializeShareGroupState: an error code for each share-partition."""

    SPEC: ClassVar[MessageSpec] = response(83, "0", "0+")
    results: Annotated[list[InitializeStateResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
