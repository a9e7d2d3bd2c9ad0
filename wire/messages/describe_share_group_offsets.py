"""DescribeShareGroupOffsets (API 90): start offsets and lag of share groups (KIP-932)."""

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


class DescribeShareGroupOffsetsRequestTopic(Message):
    """Topic in a DescribeShareGroupOffsets request, with the partitions to describe."""

    topic_name: String = ""
    """Name of the topic. Needs the right to describe it."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to describe."""


class DescribeShareGroupOffsetsRequestGroup(Message):
    """Share group in a DescribeShareGroupOffsets request, with the topics to describe."""

    group_id: String = ""
    """Id of the share group."""
    topics: Annotated[list[DescribeShareGroupOffsetsRequestTopic] | None, wire_field("[]struct", nullable="0+")] = (
        field(default_factory=list)
    )
    """Partitions to describe; null for all of which the group has state."""


class DescribeShareGroupOffsetsRequest(Message):
    """Request to the group coordinator for start offsets and lag of share groups."""

    SPEC: ClassVar[MessageSpec] = request(90, "0-1", "0+", "broker")
    """Version 0 is that of KIP-932, version 1 adds the lag (KIP-1226).

    Flow: A tool sends it to the group coordinator, which reads the offsets from the share coordinator.
    """
    groups: Annotated[list[DescribeShareGroupOffsetsRequestGroup], wire_field("[]struct")] = field(default_factory=list)
    """Groups to describe, each with its own result."""


class DescribeShareGroupOffsetsResponsePartition(Message):
    """Start offset and lag of a share group in a partition, or an error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    start_offset: Int64 = 0
    """Share-partition start offset: offset of the first record that is not acknowledged or archived. -1 if the group
    has no state of the partition.
    """
    leader_epoch: Int32 = 0
    """Leader epoch of the share-partition leader that last read or wrote the state; 0 if there is none."""
    lag: Annotated[int, wire_field("int64", "1+", ignorable=True)] = -1
    """Number of records from the start offset to the high watermark, without those that are already acknowledged or
    archived. -1 if unknown.
    """
    error_code: Int16 = 0
    """0, also without state. TOPIC_AUTHORIZATION_FAILED, or an error of finding the high watermark."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class DescribeShareGroupOffsetsResponseTopic(Message):
    """Topic in a DescribeShareGroupOffsets response, with the offset of each partition."""

    topic_name: String = ""
    """Topic name from the request."""
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic; zero if it does not exist or may not be described."""
    partitions: Annotated[list[DescribeShareGroupOffsetsResponsePartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results of the partitions."""


class DescribeShareGroupOffsetsResponseGroup(Message):
    """Share group with the start offset of each partition, or its error code."""

    group_id: String = ""
    """Group id from the request."""
    topics: Annotated[list[DescribeShareGroupOffsetsResponseTopic], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results by topic; empty with an error of the group."""
    error_code: Int16 = 0
    """Error of the whole group: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or
    UNSUPPORTED_VERSION if share groups are disabled. 0 if the partitions have their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the group, null if there is none."""


class DescribeShareGroupOffsetsResponse(Message):
    """Response to DescribeShareGroupOffsets: start offsets and lag of share groups."""

    SPEC: ClassVar[MessageSpec] = response(90, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    groups: Annotated[list[DescribeShareGroupOffsetsResponseGroup], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results, one for each group."""
