"""ReadShareGroupState (API 84): read delivery state of share-partitions from the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int8,
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
    """Share-partition of which to read the delivery state, with the sender's leader epoch."""

    partition: Int32 = 0
    """Index of the partition in its topic. A negative one is rejected with INVALID_REQUEST."""
    leader_epoch: Int32 = 0
    """Leader epoch of the sender, -1 for no check. It is stored: from then on, requests with a lower one are rejected
    with FENCED_LEADER_EPOCH.
    """


class ReadStateData(Message):
    """Topic id in a ReadShareGroupState request, with the partitions of which to read the state."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with state to read."""


class ReadShareGroupStateRequest(Message):
    """Request of a new share-partition leader to the share coordinator for its delivery state."""

    SPEC: ClassVar[MessageSpec] = request(84, "0", "0+", "broker")
    """Flow: The leader of a share-partition sends it to the share coordinator when it loads the partition. The share
    coordinator increases the leader epoch of the state, which fences the previous leader.
    """
    group_id: String = ""
    """Id of the share group. An empty one yields an empty response."""
    topics: Annotated[list[ReadStateData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions for which to read the state."""


class StateBatch(Message):
    """Range of offsets with the same delivery state and delivery count."""

    first_offset: Int64 = 0
    """Offset of the first record."""
    last_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    delivery_state: Int8 = 0
    """0 available for delivery, 2 acknowledged, 4 archived (rejected, or delivered too often)."""
    delivery_count: Int16 = 0
    """Number of deliveries of these records so far."""


class PartitionResult(Message):
    """Start offset and delivery state of a share-partition, or its error code."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0. FENCED_LEADER_EPOCH: the sender is not leader any more. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and
    COORDINATOR_LOAD_IN_PROGRESS: retry. Else UNKNOWN_TOPIC_OR_PARTITION, or INVALID_REQUEST if there is no state.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    state_epoch: Int32 = 0
    """Epoch of the state. The leader sends it in WriteShareGroupState."""
    start_offset: Int64 = 0
    """Share-partition start offset: all records below it are acknowledged or archived. -1 until the first leader
    chooses it by `share.auto.offset.reset`.
    """
    state_batches: Annotated[list[StateBatch], wire_field("[]struct")] = field(default_factory=list)
    """Ranges of records from the start offset on, in ascending order. Records in no range are available."""


class ReadStateResult(Message):
    """Topic id in a ReadShareGroupState response, with the delivery state of each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class ReadShareGroupStateResponse(Message):
    """Response to ReadShareGroupState: the delivery state of each share-partition."""

    SPEC: ClassVar[MessageSpec] = response(84, "0", "0+")
    results: Annotated[list[ReadStateResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
