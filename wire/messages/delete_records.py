"""DeleteRecords (API 21): delete records below an offset (KIP-107)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class DeleteRecordsPartition(Message):
    """Partition with the offset below which its records are to be deleted."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    offset: Int64 = 0
    """Offset of the first record to keep; -1 for the high watermark, which deletes all. Above the high watermark it is
    rejected with OFFSET_OUT_OF_RANGE.
    """


class DeleteRecordsTopic(Message):
    """Topic in a DeleteRecords request, with the partitions to delete records from."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[DeleteRecordsPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to delete from."""


class DeleteRecordsRequest(Message):
    """Request to the leaders to raise the log start offset of partitions."""

    SPEC: ClassVar[MessageSpec] = request(21, "0-2", "2+", "broker")
    """Version 2 is flexible.

    Flow: An admin client sends it to the leader of each partition. The leader moves the log start offset forward and
    responds when all replicas on unfenced brokers have done so. Whole segments below the offset are deleted later.
    """
    topics: Annotated[list[DeleteRecordsTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to delete from."""
    timeout_ms: Int32 = 0
    """Time in ms to wait until the replicas have raised their log start offset too; then REQUEST_TIMED_OUT. The
    deletion itself is done.
    """


class DeleteRecordsPartitionResult(Message):
    """Low watermark of a partition (lowest log start offset of its replicas), or its error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    low_watermark: Int64 = 0
    """Lowest log start offset of the replicas on unfenced brokers; -1 with an error but REQUEST_TIMED_OUT."""
    error_code: Int16 = 0
    """0, or OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION (compacted
    topic), INVALID_TOPIC_EXCEPTION (internal topic), REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR,
    TOPIC_AUTHORIZATION_FAILED.
    """


class DeleteRecordsTopicResult(Message):
    """Topic in a DeleteRecords response, with the results of its partitions."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[DeleteRecordsPartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class DeleteRecordsResponse(Message):
    """Response to DeleteRecords: for each partition its low watermark afterwards, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(21, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[DeleteRecordsTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
