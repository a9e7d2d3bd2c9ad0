"""OffsetCommit (API 8): store committed offsets of a group."""

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
    request,
    response,
    wire_field,
)


class OffsetCommitRequestPartition(Message):
    """Partition with the offset to commit for the group."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    committed_offset: Int64 = 0
    """Offset of the next record to process."""
    committed_leader_epoch: Annotated[int, wire_field("int32", "6+", ignorable=True)] = -1
    """Leader epoch of the last processed record, -1 if unknown. Stored with the offset, so that a consumer detects a
    truncated log (KIP-320).
    """
    committed_metadata: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text of the application, stored with the offset; null is stored as an empty text. Longer than
    `offset.metadata.max.bytes`, it is rejected with OFFSET_METADATA_TOO_LARGE.
    """


class OffsetCommitRequestTopic(Message):
    """Topic in an OffsetCommit request, with the offsets to commit."""

    name: Annotated[str, wire_field("string", "0-9", ignorable=True)] = ""
    """Topic name, up to version 9. Needs the right to read the topic."""
    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 10 on. An unknown one yields UNKNOWN_TOPIC_ID for each partition."""
    partitions: Annotated[list[OffsetCommitRequestPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with their offsets."""


class OffsetCommitRequest(Message):
    """Request of a consumer or an admin client to the group coordinator to commit offsets of a group."""

    SPEC: ClassVar[MessageSpec] = request(8, "2-10", "8+", "broker")
    """Version 5 removes the retention time (KIP-211), 6 adds leader epochs (KIP-320), 7 static members (KIP-345).
    Version 8 is flexible, 9 is the first for members that use the consumer protocol, and 10 replaces topic names with
    topic ids (KIP-848). Versions 0 and 1 were removed in Apache Kafka 4.0.

    Flow: A consumer sends it to the group coordinator, every `auto.commit.interval.ms` or when the application commits.
    The coordinator checks the membership, appends the offsets to `__consumer_offsets` and responds when the ISR has
    them.
    """
    group_id: String = ""
    """`group.id` of the consumer. A commit without membership creates the group if it does not exist."""
    generation_id_or_member_epoch: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Generation of a classic group, else member epoch. A stale one is rejected with ILLEGAL_GENERATION or
    STALE_MEMBER_EPOCH, except for partitions that the member has had since that epoch. -1 without membership, which
    requires a group without members.
    """
    member_id: Annotated[str, wire_field("string", "1+", ignorable=True)] = ""
    """Member id of the consumer; an unknown one is rejected with UNKNOWN_MEMBER_ID. Empty without membership, as for
    partitions that are assigned manually.
    """
    group_instance_id: Annotated[str | None, wire_field("string", "7+", nullable="7+")] = None
    """`group.instance.id` of a static member, null for a dynamic one. If another member id of a classic group has taken
    over this instance, the request is rejected with FENCED_INSTANCE_ID.
    """
    retention_time_ms: Annotated[int, wire_field("int64", "2-4", ignorable=True)] = -1
    """Time in ms after which the offsets expire, up to version 4; -1 for `offsets.retention.minutes` of the broker."""
    topics: Annotated[list[OffsetCommitRequestTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the offsets to commit."""


class OffsetCommitResponsePartition(Message):
    """Error code of a partition; 0 if its offset was committed."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if stored. ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID: the membership is lost.
    REBALANCE_IN_PROGRESS: join again. NOT_COORDINATOR: find the coordinator. Else UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE, GROUP_ID_NOT_FOUND (from version 9 on).
    """


class OffsetCommitResponseTopic(Message):
    """Topic in an OffsetCommit response, with an error code for each partition."""

    name: Annotated[str, wire_field("string", "0-9", ignorable=True)] = ""
    """Topic name from the request, up to version 9."""
    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """Topic id from the request, from version 10 on."""
    partitions: Annotated[list[OffsetCommitResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class OffsetCommitResponse(Message):
    """Error code of each partition, sent when the offsets are replicated; 0 if the offset was committed."""

    SPEC: ClassVar[MessageSpec] = response(8, "2-10", "8+")
    throttle_time_ms: Annotated[int, wire_field("int32", "3+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[OffsetCommitResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
