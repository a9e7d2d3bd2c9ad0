"""OffsetForLeaderEpoch (API 23): find the end of a leader epoch, to detect truncated logs (KIP-101)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class OffsetForLeaderPartition(Message):
    """Partition with the leader epoch of which to look up the end offset."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    current_leader_epoch: Annotated[int, wire_field("int32", "2+", ignorable=True)] = -1
    """Leader epoch that the client knows, -1 for no check. An older one is rejected with FENCED_LEADER_EPOCH, a newer
    one with UNKNOWN_LEADER_EPOCH.
    """
    leader_epoch: Int32 = 0
    """Leader epoch to look up: that of the last record which the client has read."""


class OffsetForLeaderTopic(Message):
    """Topic in an OffsetForLeaderEpoch request, with the leader epochs to look up."""

    topic: String = ""
    """Topic name. Needs the right to describe the topic, or cluster action."""
    partitions: Annotated[list[OffsetForLeaderPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with the leader epochs to look up."""


class OffsetForLeaderEpochRequest(Message):
    """Request to partition leaders for the end offsets of leader epochs, after a change of leader."""

    SPEC: ClassVar[MessageSpec] = request(23, "2-4", "4+", "broker")
    """Version 2 adds the leader epoch that the client knows (KIP-320), 3 the replica id (KIP-392), 4 is flexible.
    Versions 0 and 1 were removed in Apache Kafka 4.0. Followers no longer send it: Fetch detects diverging logs from
    version 12 on.

    Flow: A consumer sends it to the leader after a leader change, to detect that records it has read were truncated.
    Followers of Kafka before version 2.7 find their truncation offset with it; later ones use Fetch.
    """
    replica_id: Annotated[int, wire_field("int32", "3+", ignorable=True)] = -2
    """Broker id of a follower, -1 from a consumer, -2 (the default) for debugging. The leader ignores it."""
    topics: Annotated[list[OffsetForLeaderTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the leader epochs to look up."""


class EpochEndOffset(Message):
    """Leader epoch that was found in the log of a partition, with its end offset; or an error code."""

    error_code: Int16 = 0
    """0, also if the epoch is unknown. FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER: find the leader.
    UNKNOWN_LEADER_EPOCH: retry. Else UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED.
    """
    partition: Int32 = 0
    """Index of the partition in its topic."""
    leader_epoch: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Largest leader epoch in the log that is not above the requested one, or the requested one if all in the log are
    newer. -1 if all are older, or with an error.
    """
    end_offset: Int64 = -1
    """Offset after the last record of this epoch: the end of the log for the current epoch, the start of the oldest
    epoch for one before it. If it is below the position of a consumer, the log was truncated, and the consumer resets
    its position. -1 if `leader_epoch` is -1.
    """


class OffsetForLeaderTopicResult(Message):
    """Topic in an OffsetForLeaderEpoch response, with the end offset found in each partition."""

    topic: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[EpochEndOffset], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class OffsetForLeaderEpochResponse(Message):
    """Response to OffsetForLeaderEpoch: the end offset of the leader epoch in each partition."""

    SPEC: ClassVar[MessageSpec] = response(23, "2-4", "4+")
    throttle_time_ms: Annotated[int, wire_field("int32", "2+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[OffsetForLeaderTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
