"""ListOffsets (API 2): find offsets by timestamp, or the ends of a log."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class ListOffsetsPartition(Message):
    """Partition in a ListOffsets request: timestamp, or code of an end of the log, to find the offset of."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    current_leader_epoch: Annotated[int, wire_field("int32", "4+", ignorable=True)] = -1
    """Leader epoch that the client knows, -1 for no check. An older one is rejected with FENCED_LEADER_EPOCH, a newer
    one with UNKNOWN_LEADER_EPOCH.
    """
    timestamp: Int64 = 0
    """Time in ms since the epoch, to find the first record that is not older. -1 end of the log, -2 start, -3 record
    with the largest timestamp, -4 start of the local log, -5 last tiered offset, -6 first offset that is not uploaded.
    """


class ListOffsetsTopic(Message):
    """Topic in a ListOffsets request, with the partitions to search."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[ListOffsetsPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to search. One that occurs twice is rejected with INVALID_REQUEST."""


class ListOffsetsRequest(Message):
    """Request to partition leaders for the first offset at or after a timestamp, or for an end of the log."""

    SPEC: ClassVar[MessageSpec] = request(2, "1-11", "6+", "broker")
    """Version 1 returns a single offset (KIP-79), 2 adds the isolation level (KIP-98), 4 leader epochs (KIP-320), 5
    brings OFFSET_NOT_AVAILABLE (KIP-207), 6 is flexible, 7 adds timestamp -3 (KIP-734), 8 -4 (KIP-405), 9 -5
    (KIP-1005), 10 a timeout for remote storage (KIP-1075), 11 -6 (KIP-1023). Version 0 was removed in Apache Kafka 4.0.

    Flow: A consumer sends it to the leader of each partition when it has no committed offset (`auto.offset.reset`),
    seeks to a time, or computes its lag. The leader responds with an offset and its timestamp.

    Errors: CORRUPT_MESSAGE: A batch of the segment that has the timestamp is damaged. KAFKA_STORAGE_ERROR: Reading the
    log or its index failed. LEADER_NOT_AVAILABLE: The high watermark of a new leader is not known yet, up to version 4;
    later versions have OFFSET_NOT_AVAILABLE. UNSUPPORTED_VERSION: The special timestamp exists in later versions only.
    """
    replica_id: Int32 = 0
    """Broker id of a follower, which finds records up to the end of the log; -1 from a client. -2 for debugging: any
    replica responds.
    """
    isolation_level: Annotated[int, wire_field("int8", "2+")] = 0
    """0, read_uncommitted: the end of the log is the high watermark. 1, read_committed: the end is the last stable
    offset. Records beyond the end are not found.
    """
    topics: Annotated[list[ListOffsetsTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to search."""
    timeout_ms: Annotated[int, wire_field("int32", "10+", ignorable=True)] = 0
    """Time in ms to wait for lookups in remote storage; 0: the broker's setting."""


class ListOffsetsPartitionResponse(Message):
    """Offset and timestamp that were found in a partition, or its error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, also if no record was found. OFFSET_NOT_AVAILABLE: retry; a new leader does not know its high watermark yet.
    Else NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
    """
    timestamp: Annotated[int, wire_field("int64", "1+")] = -1
    """Timestamp of the record that was found, in ms since the epoch; -1 for the ends of a log, or if none was found."""
    offset: Annotated[int, wire_field("int64", "1+")] = -1
    """Offset that was found, -1 if there is none."""
    leader_epoch: Annotated[int, wire_field("int32", "4+")] = -1
    """Leader epoch of the record at this offset, -1 if unknown. The client sends it as `current_leader_epoch` or
    validates its position with it.
    """


class ListOffsetsTopicResponse(Message):
    """Topic in a ListOffsets response, with the offset that was found in each partition."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[ListOffsetsPartitionResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class ListOffsetsResponse(Message):
    """Response to ListOffsets: offset and timestamp found in each partition, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(2, "1-11", "6+")
    throttle_time_ms: Annotated[int, wire_field("int32", "2+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[ListOffsetsTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
