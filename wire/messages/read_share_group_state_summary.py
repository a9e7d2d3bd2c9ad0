"""ReadShareGroupStateSummary (API 87): read start offsets of share-partitions from the share coordinator (KIP-932)."""

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
    """Share-partition of which to read the start offset, with the sender's leader epoch."""

    partition: Int32 = 0
    """Index of the partition in its topic. A negative one is rejected with INVALID_REQUEST."""
    leader_epoch: Int32 = 0
    """Leader epoch of the sender, -1 if it is no leader. The share coordinator does not check it."""


class ReadStateSummaryData(Message):
    """Topic id in a ReadShareGroupStateSummary request, with the partitions to read."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with state to read."""


class ReadShareGroupStateSummaryRequest(Message):
    """Request of a group coordinator to the share coordinator for start offsets of a share group."""

    SPEC: ClassVar[MessageSpec] = request(87, "0-1", "0+", "broker")
    """Version 1 adds `delivery_complete_count` to the response (KIP-1226).

    Flow: The group coordinator sends it to the share coordinator to describe the offsets of a share group. Unlike
    ReadShareGroupState it fences no leader.
    """
    group_id: String = ""
    """Id of the share group. An empty one yields an empty response."""
    topics: Annotated[list[ReadStateSummaryData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions for which to read the start offset."""


class PartitionResult(Message):
    """Start offset and count of completed records of a share-partition, or its error code."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, also if there is no state. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS: retry.
    Else UNKNOWN_TOPIC_OR_PARTITION or INVALID_REQUEST.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    state_epoch: Int32 = 0
    """Epoch of the state, raised each time it is created again; 0 if there is no state."""
    leader_epoch: Int32 = 0
    """Leader epoch of the share-partition leader that last read or wrote the state; 0 if there is none."""
    start_offset: Int64 = 0
    """Share-partition start offset: all records below it are acknowledged or archived. -1 if there is no state, or no
    leader has chosen it yet.
    """
    delivery_complete_count: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Number of records from the start offset on that are acknowledged or archived, for the lag of the group. -1 if
    unknown.
    """


class ReadStateSummaryResult(Message):
    """Topic id in a ReadShareGroupStateSummary response, with the start offset of each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class ReadShareGroupStateSummaryResponse(Message):
    """Response to ReadShareGroupStateSummary: the start offset of each share-partition."""

    SPEC: ClassVar[MessageSpec] = response(87, "0-1", "0+")
    results: Annotated[list[ReadStateSummaryResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
