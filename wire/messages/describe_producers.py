"""DescribeProducers (API 61): idempotent and transactional producers with state in a partition (KIP-664)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class TopicRequest(Message):
    """Topic in a DescribeProducers request, with the partitions of which to list the producers."""

    name: String = ""
    """Topic name."""
    partition_indexes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions. One that occurs twice has one result."""


class DescribeProducersRequest(Message):
    """Request to partition leaders for the state of producers, to find hanging transactions."""

    SPEC: ClassVar[MessageSpec] = request(61, "0", "0+", "broker")
    """Flow: A tool sends it to the leader of each partition, to find hanging transactions."""
    topics: Annotated[list[TopicRequest], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to describe."""


class ProducerState(Message):
    """Idempotent or transactional producer in a partition: epoch, last sequence and open transaction."""

    producer_id: Int64 = 0
    """Id of the producer, from InitProducerId."""
    producer_epoch: Int32 = 0
    """Last epoch of the producer."""
    last_sequence: Int32 = -1
    """Sequence number of its last record; -1 after a transaction marker without records."""
    last_timestamp: Int64 = -1
    """Timestamp of its last batch in ms since the epoch; -1 if unknown."""
    coordinator_epoch: Int32 = 0
    """Epoch of the transaction coordinator in the last transaction marker of the producer; -1 if there is none."""
    current_txn_start_offset: Int64 = -1
    """Offset of the first record of its open transaction; -1 if none is open."""


class PartitionResponse(Message):
    """Partition with the state of its producers, or its error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or NOT_LEADER_OR_FOLLOWER (send the request to the leader), UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    active_producers: Annotated[list[ProducerState], wire_field("[]struct")] = field(default_factory=list)
    """Producers with state in the partition. It is deleted `producer.id.expiration.ms` after the last batch."""


class TopicResponse(Message):
    """Topic in a DescribeProducers response, with the producers of each partition."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[PartitionResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class DescribeProducersResponse(Message):
    """Response to DescribeProducers: the state of the producers in each partition."""

    SPEC: ClassVar[MessageSpec] = response(61, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[TopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
