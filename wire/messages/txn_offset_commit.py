"""TxnOffsetCommit (API 28): commit offsets of a group as a part of a transaction (KIP-98)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class TxnOffsetCommitRequestPartition(Message):
    """Partition with the offset to commit for the group in the transaction."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    committed_offset: Int64 = 0
    """Offset of the next record to process."""
    committed_leader_epoch: Annotated[int, wire_field("int32", "2+", ignorable=True)] = -1
    """Leader epoch of the last processed record, -1 if unknown. Stored with the offset, so that a consumer detects a
    truncated log (KIP-320).
    """
    committed_metadata: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text of the application, stored with the offset. Longer than `offset.metadata.max.bytes`, it is rejected with
    OFFSET_METADATA_TOO_LARGE.
    """


class TxnOffsetCommitRequestTopic(Message):
    """Topic in a TxnOffsetCommit request, with the offsets to commit."""

    name: String = ""
    """Topic name. Needs the right to read the topic."""
    partitions: Annotated[list[TxnOffsetCommitRequestPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with their offsets."""


class TxnOffsetCommitRequest(Message):
    """Request of a producer to the group coordinator to commit offsets of a group in its transaction."""

    SPEC: ClassVar[MessageSpec] = request(28, "0-5", "3+", "broker")
    """Version 2 adds leader epochs (KIP-320), 3 is flexible and adds the member for fencing by the group (KIP-447), 4
    brings TRANSACTION_ABORTABLE. With transaction version 2, producers send version 5 without AddOffsetsToTxn: the
    coordinator adds the group to the transaction (KIP-890).

    Flow: A producer sends it to the group coordinator. The offsets are stored as pending and become visible with the
    commit marker of the transaction; an abort marker removes them.
    """
    transactional_id: String = ""
    """`transactional.id` of the producer."""
    group_id: String = ""
    """`group.id` of the consumer that read the input. An empty one is rejected with INVALID_GROUP_ID."""
    producer_id: Int64 = 0
    """Producer id from the InitProducerId response, or from the last EndTxn response. Another one than that of the
    transaction is rejected with INVALID_PRODUCER_ID_MAPPING.
    """
    producer_epoch: Int16 = 0
    """Epoch of the producer. Another one than the current epoch is rejected with INVALID_PRODUCER_EPOCH."""
    generation_id: Annotated[int, wire_field("int32", "3+")] = -1
    """Generation or member epoch of the consumer (`ConsumerGroupMetadata`). A stale one is rejected with
    ILLEGAL_GENERATION, so that a replaced consumer commits no offsets. -1 with an empty `member_id` for no check.
    """
    member_id: Annotated[str, wire_field("string", "3+")] = ""
    """Member id of the consumer, empty from producers that do not send it. An unknown one is rejected with
    UNKNOWN_MEMBER_ID.
    """
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None
    """`group.instance.id` of a static member, null for a dynamic one. If another member id of a classic group has taken
    over this instance, the request is rejected with FENCED_INSTANCE_ID.
    """
    topics: Annotated[list[TxnOffsetCommitRequestTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the offsets to commit."""


class TxnOffsetCommitResponsePartition(Message):
    """Error code of a partition; 0 if its offset is stored, to become visible with the transaction."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if stored; the offset is valid once the transaction commits. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
    TRANSACTION_ABORTABLE: abort. INVALID_PRODUCER_EPOCH: the producer is fenced. NOT_COORDINATOR: find the coordinator.
    Else UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE.
    """


class TxnOffsetCommitResponseTopic(Message):
    """Topic in a TxnOffsetCommit response, with an error code for each partition."""

    name: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[TxnOffsetCommitResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class TxnOffsetCommitResponse(Message):
    """Response to TxnOffsetCommit: an error code for each partition."""

    SPEC: ClassVar[MessageSpec] = response(28, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[TxnOffsetCommitResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
