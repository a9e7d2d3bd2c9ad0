"""Produce (API 0): append record batches to partitions."""

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
    Opaque,
    request,
    response,
    wire_field,
)


class PartitionProduceData(Message):
    """Partition in a Produce request, with the record batch to append."""

    index: Int32 = 0
    """Index of the partition in its topic."""
    records: Annotated[Opaque, wire_field("records", nullable="0+")] = None
    """Records, exactly one batch of format 2 (KIP-98). No batch, or more than one, is rejected with INVALID_RECORD, and
    one above `max.message.bytes` of the topic with MESSAGE_TOO_LARGE. The leader sets its base offset and leader epoch.
    """


class TopicProduceData(Message):
    """Topic in a Produce request, with the partitions to append to."""

    name: Annotated[str, wire_field("string", "0-12", ignorable=True)] = ""
    """Topic name, up to version 12."""
    topic_id: Annotated[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 13 on. An unknown one yields UNKNOWN_TOPIC_ID for each partition."""
    partition_data: Annotated[list[PartitionProduceData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with the records to append."""


class ProduceRequest(Message):
    """Request of a producer to partition leaders to append record batches."""

    SPEC: ClassVar[MessageSpec] = request(0, "3-13", "9+", "broker")
    """Version 3 adds transactions and record format 2 (KIP-98), 4 brings KAFKA_STORAGE_ERROR (KIP-112), 7 permits
    batches compressed with zstd (KIP-110), 8 reports errors of single records (KIP-467), 9 is flexible, 10 returns new
    leaders (KIP-951). Version 11 brings TRANSACTION_ABORTABLE, and 12 adds partitions to the transaction without
    AddPartitionsToTxn (KIP-890). Version 13 replaces topic names with topic ids (KIP-516). Versions 0 to 2 were removed
    in Apache Kafka 4.0; ApiVersions still lists them, for librdkafka (KAFKA-18659).

    Flow: A producer sends batches to the leader of each partition. The leader validates them, assigns offsets, appends
    them to its log, and responds at once with `acks=1`, or when the whole ISR has them with `acks=-1`. With `acks=0`
    there is no response. After an error of leadership the producer refreshes its metadata and sends the batch again;
    sequence numbers keep a repeated batch from being appended twice.

    Errors: INVALID_TXN_STATE: The partition was not added to the transaction, up to version 10; later versions have
    TRANSACTION_ABORTABLE.
    """
    transactional_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None
    """`transactional.id` of the producer, null if it has none. Transactional batches require an id that the principal
    may write to, else all partitions have TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    acks: Int16 = 0
    """-1: respond when the whole ISR has the records, at least `min.insync.replicas`. 1: respond when the leader has
    appended them. 0: no response; the connection is closed on an error. Others are rejected with INVALID_REQUIRED_ACKS.
    """
    timeout_ms: Int32 = 0
    """Longest wait for the ISR in ms, with `acks` -1 (`request.timeout.ms` of the producer). After it the partition has
    REQUEST_TIMED_OUT; the records stay in the log.
    """
    topic_data: Annotated[list[TopicProduceData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the records to append. Each partition has its own result."""


class BatchIndexAndErrorMessage(Message):
    """Record that made the broker reject its batch: index in the batch, and text of the error."""

    batch_index: Annotated[int, wire_field("int32", "8+")] = 0
    """Index of the record in its batch, from 0 on."""
    batch_index_error_message: Annotated[str | None, wire_field("string", "8+", nullable="8+")] = None
    """Text for the error of this record, null if there is none."""


class LeaderIdAndEpoch(Message):
    """Current leader of a partition and its leader epoch, in a Produce response."""

    leader_id: Annotated[int, wire_field("int32", "10+")] = -1
    """Node id of the leader, -1 if there is none or it is unknown."""
    leader_epoch: Annotated[int, wire_field("int32", "10+")] = -1
    """Leader epoch in which this node leads, -1 if unknown."""


class PartitionProduceResponse(Message):
    """Offset of the first record appended to a partition, or the error code of its batch."""

    index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, also for a duplicate. NOT_LEADER_OR_FOLLOWER: find the leader. NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: retry. OUT_OF_ORDER_SEQUENCE_NUMBER: batches are missing.
    INVALID_PRODUCER_EPOCH: fenced. Else MESSAGE_TOO_LARGE, INVALID_RECORD and others.
    """
    base_offset: Int64 = 0
    """Offset of the first record of the batch; for a duplicate, the offset of its first append. -1 if the batch was
    rejected.
    """
    log_append_time_ms: Annotated[int, wire_field("int64", "2+", ignorable=True)] = -1
    """Time of the append in ms since the epoch, if `message.timestamp.type` of the topic is LogAppendTime; -1 with
    CreateTime. For a duplicate, the timestamp of the first append.
    """
    log_start_offset: Annotated[int, wire_field("int64", "5+", ignorable=True)] = -1
    """Offset of the first record that is still there. -1 with errors such as UNKNOWN_TOPIC_OR_PARTITION or
    NOT_LEADER_OR_FOLLOWER.
    """
    record_errors: Annotated[list[BatchIndexAndErrorMessage], wire_field("[]struct", "8+", ignorable=True)] = field(
        default_factory=list
    )
    """Records that made the broker reject the batch. Empty for other errors, and after 10,000 of them in a response."""
    error_message: Annotated[str | None, wire_field("string", "8+", nullable="8+", ignorable=True)] = None
    """Text for the error if single records are invalid or the whole request is rejected; else mostly null."""
    current_leader: Annotated[LeaderIdAndEpoch, wire_field("struct", "10+", tagged="10+", tag=0)] = field(
        default_factory=LeaderIdAndEpoch
    )
    """Current leader of the partition, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH. Left out otherwise."""


class TopicProduceResponse(Message):
    """Topic in a Produce response, with the result of each partition."""

    name: Annotated[str, wire_field("string", "0-12", ignorable=True)] = ""
    """Topic name from the request, up to version 12."""
    topic_id: Annotated[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    """Topic id from the request, from version 13 on."""
    partition_responses: Annotated[list[PartitionProduceResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class NodeEndpoint(Message):
    """Node id, address and rack of a current leader that a Produce response names."""

    node_id: Annotated[int, wire_field("int32", "10+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "10+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("int32", "10+")] = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", "10+", nullable="10+")] = None
    """`broker.rack` of the leader, null if not set."""


class ProduceResponse(Message):
    """Response to Produce: an offset or error code for each partition. None is sent for `acks` 0."""

    SPEC: ClassVar[MessageSpec] = response(0, "3-13", "9+")
    responses: Annotated[list[TopicProduceResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "10+", tagged="10+", tag=0)] = field(
        default_factory=list
    )
    """Addresses of the leaders named in `current_leader`, so that a client need not fetch metadata first."""
