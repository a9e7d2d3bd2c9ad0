"""OffsetFetch (API 9): read committed offsets of groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Message, MessageSpec, request, response, wire_field


class OffsetFetchRequestTopic(Message):
    """Topic in an OffsetFetch request up to version 7, with the partitions to read offsets of."""

    name: Annotated[str, wire_field("string", "0-7")] = ""
    """Topic name. Needs the right to describe the topic."""
    partition_indexes: Annotated[list[int], wire_field("[]int32", "0-7")] = field(default_factory=list)
    """Indexes of the partitions to read."""


class OffsetFetchRequestTopics(Message):
    """Topic in an OffsetFetch request from version 8 on, with the partitions to read offsets of."""

    name: Annotated[str, wire_field("string", "8-9", ignorable=True)] = ""
    """Topic name, in versions 8 and 9. Needs the right to describe the topic."""
    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 10 on. An unknown one yields UNKNOWN_TOPIC_ID for each partition."""
    partition_indexes: Annotated[list[int], wire_field("[]int32", "8+")] = field(default_factory=list)
    """Indexes of the partitions to read."""


class OffsetFetchRequestGroup(Message):
    """Group in an OffsetFetch request (version 8 on), with the topics to read committed offsets of."""

    group_id: Annotated[str, wire_field("string", "8+")] = ""
    """Id of the group. A group that does not exist has no offsets, which is no error."""
    member_id: Annotated[str | None, wire_field("string", "9+", nullable="9+", ignorable=True)] = None
    """Member id of a consumer that uses the consumer protocol, null for no check. An unknown one is rejected with
    UNKNOWN_MEMBER_ID.
    """
    member_epoch: Annotated[int, wire_field("int32", "9+", ignorable=True)] = -1
    """Member epoch of that consumer, -1 for no check. Another one than the current epoch is rejected with
    STALE_MEMBER_EPOCH.
    """
    topics: Annotated[list[OffsetFetchRequestTopics] | None, wire_field("[]struct", "8+", nullable="8+")] = field(
        default_factory=list
    )
    """Topics with the offsets to read; null for all offsets of the group."""


class OffsetFetchRequest(Message):
    """Request to the group coordinator for the committed offsets of groups."""

    SPEC: ClassVar[MessageSpec] = request(9, "1-10", "6+", "broker")
    """Version 2 reads all offsets of a group and adds an error of the group (KIP-88), 5 adds leader epochs (KIP-320), 6
    is flexible, 7 waits for open transactions (KIP-447), 8 reads several groups (KIP-709), 9 checks member epochs and
    10 replaces topic names with topic ids (KIP-848). Version 0 was removed in Apache Kafka 4.0.

    Flow: A consumer sends it to the group coordinator when partitions are assigned to it. For a partition without a
    committed offset the coordinator returns -1, and the consumer goes on with ListOffsets.

    Errors: ILLEGAL_GENERATION: The member uses the classic protocol in a consumer group, and its generation is not the
    member epoch.
    """
    group_id: Annotated[str, wire_field("string", "0-7")] = ""
    """Id of the group, up to version 7. A group that does not exist has no offsets, which is no error."""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, wire_field("[]struct", "0-7", nullable="2-7")] = field(
        default_factory=list
    )
    """Topics with the offsets to read, up to version 7. Null, from version 2 on, for all offsets of the group."""
    groups: Annotated[list[OffsetFetchRequestGroup], wire_field("[]struct", "8+")] = field(default_factory=list)
    """Groups with the offsets to read, from version 8 on. Each has its own result."""
    require_stable: Annotated[bool, wire_field("bool", "7+")] = False
    """True to return UNSTABLE_OFFSET_COMMIT for a partition with an offset in an open transaction; the client retries.
    Consumers with `isolation.level` read_committed send it. False to return the last committed offset.
    """


class OffsetFetchResponsePartition(Message):
    """Committed offset of a group in a partition, or an error code; up to version 7."""

    partition_index: Annotated[int, wire_field("int32", "0-7")] = 0
    """Index of the partition in its topic."""
    committed_offset: Annotated[int, wire_field("int64", "0-7")] = 0
    """Offset of the next record to process, -1 if none is committed."""
    committed_leader_epoch: Annotated[int, wire_field("int32", "5-7", ignorable=True)] = -1
    """Leader epoch of the last processed record, -1 if unknown."""
    metadata: Annotated[str | None, wire_field("string", "0-7", nullable="0-7")] = ""
    """Text of the application that was committed with the offset; empty if there is none."""
    error_code: Annotated[int, wire_field("int16", "0-7")] = 0
    """0, also without a committed offset. UNSTABLE_OFFSET_COMMIT: retry. Else TOPIC_AUTHORIZATION_FAILED; in version 1
    also the error of the group.
    """


class OffsetFetchResponseTopic(Message):
    """Topic in an OffsetFetch response up to version 7, with committed offsets."""

    name: Annotated[str, wire_field("string", "0-7")] = ""
    """Topic name from the request."""
    partitions: Annotated[list[OffsetFetchResponsePartition], wire_field("[]struct", "0-7")] = field(
        default_factory=list
    )
    """Committed offsets of the partitions."""


class OffsetFetchResponsePartitions(Message):
    """Committed offset of a group in a partition, or an error code; from version 8 on."""

    partition_index: Annotated[int, wire_field("int32", "8+")] = 0
    """Index of the partition in its topic."""
    committed_offset: Annotated[int, wire_field("int64", "8+")] = 0
    """Offset of the next record to process, -1 if none is committed."""
    committed_leader_epoch: Annotated[int, wire_field("int32", "8+", ignorable=True)] = -1
    """Leader epoch of the last processed record, -1 if unknown. A consumer finds out with it whether the log was
    truncated (KIP-320).
    """
    metadata: Annotated[str | None, wire_field("string", "8+", nullable="8+")] = ""
    """Text of the application that was committed with the offset; empty if there is none."""
    error_code: Annotated[int, wire_field("int16", "8+")] = 0
    """0, also without a committed offset. UNSTABLE_OFFSET_COMMIT: retry; an open transaction may change the offset.
    Else UNKNOWN_TOPIC_ID or TOPIC_AUTHORIZATION_FAILED.
    """


class OffsetFetchResponseTopics(Message):
    """Topic in an OffsetFetch response from version 8 on, with committed offsets."""

    name: Annotated[str, wire_field("string", "8-9", ignorable=True)] = ""
    """Topic name, in versions 8 and 9."""
    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 10 on. If all offsets are requested, topics that do not exist any more are left
    out.
    """
    partitions: Annotated[list[OffsetFetchResponsePartitions], wire_field("[]struct", "8+")] = field(
        default_factory=list
    )
    """Committed offsets of the partitions."""


class OffsetFetchResponseGroup(Message):
    """Group with its committed offsets, or its error code; from version 8 on."""

    group_id: Annotated[str, wire_field("string", "8+")] = ""
    """Group id from the request."""
    topics: Annotated[list[OffsetFetchResponseTopics], wire_field("[]struct", "8+")] = field(default_factory=list)
    """Committed offsets by topic; empty with an error of the group."""
    error_code: Annotated[int, wire_field("int16", "8+")] = 0
    """Error of the whole group: GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, NOT_COORDINATOR
    (find the coordinator), COORDINATOR_LOAD_IN_PROGRESS (retry). 0 if the partitions have their own.
    """


class OffsetFetchResponse(Message):
    """Response to OffsetFetch: committed offsets by group, topic and partition."""

    SPEC: ClassVar[MessageSpec] = response(9, "1-10", "6+")
    throttle_time_ms: Annotated[int, wire_field("int32", "3+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[OffsetFetchResponseTopic], wire_field("[]struct", "0-7")] = field(default_factory=list)
    """Committed offsets by topic, up to version 7."""
    error_code: Annotated[int, wire_field("int16", "2-7", ignorable=True)] = 0
    """Error of the group, from version 2 to 7: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR (find the coordinator),
    COORDINATOR_LOAD_IN_PROGRESS (retry). 0 if the partitions have their own.
    """
    groups: Annotated[list[OffsetFetchResponseGroup], wire_field("[]struct", "8+")] = field(default_factory=list)
    """Results by group, from version 8 on."""
