"""ShareFetch (API 78): acquire records of share-partitions, and acknowledge records acquired before (KIP-932)."""

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
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class AcknowledgementBatch(Message):
    """Range of offsets with the acknowledgements (accept, release, reject, renew) of its records."""

    first_offset: Int64 = 0
    """Offset of the first record."""
    last_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    acknowledge_types: Annotated[list[int], wire_field("[]int8")] = field(default_factory=list)
    """Type for the whole range, or a type for each offset: 0 gap (no record at this offset), 1 accept, 2 release for
    another delivery, 3 reject (archive), 4 renew the lock (from version 2 on). Another count or type is rejected with
    INVALID_REQUEST.
    """


class FetchPartition(Message):
    """Partition in a ShareFetch request: read from it, and acknowledge records of it."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    partition_max_bytes: Annotated[int, wire_field("int32", "0")] = 0
    """Limit in bytes for the records of this partition, in version 0 only, which is removed."""
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], wire_field("[]struct")] = field(default_factory=list)
    """Acknowledgements, processed before the fetch, in ascending order. If one is rejected, none of the partition takes
    effect. Not allowed in the request that opens a session: INVALID_REQUEST for the whole request.
    """


class FetchTopic(Message):
    """Topic id in a ShareFetch request, with the partitions to read or to acknowledge records of."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic. An unknown one yields UNKNOWN_TOPIC_ID in each partition."""
    partitions: Annotated[list[FetchPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to add to the share session, or with acknowledgements."""


class ForgottenTopic(Message):
    """Topic id in a ShareFetch request, with the partitions to remove from the share session."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to remove."""


class ShareFetchRequest(Message):
    """Request of a share group member to acquire records, and to acknowledge earlier ones."""

    SPEC: ClassVar[MessageSpec] = request(78, "1-2", "0+", "broker")
    """Version 0 was an early access in Apache Kafka 4.0 and is removed, version 1 is that of KIP-932. Version 2 adds
    the acquire mode (KIP-1206) and acknowledgements that renew locks (KIP-1222).

    Flow: A member sends it to the leaders of its share-partitions. The leader acquires records for the member: no other
    member gets them until they are acknowledged, released, or the lock expires. Acknowledgements of earlier records
    come with the next request.
    """
    group_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`group.id` of the share consumer. Null is rejected with INVALID_REQUEST."""
    member_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Id of the member, as in its ShareGroupHeartbeat requests. Null, an empty one or more than 36 characters are
    rejected with INVALID_REQUEST.
    """
    share_session_epoch: Int32 = 0
    """Number of the request in its share session: 0 opens one, then 1, 2 and so on; after 2147483647 follows 1. -1
    closes the session, which releases all records still acquired. The session ends with its connection.
    """
    max_wait_ms: Int32 = 0
    """Longest time in ms that the broker holds the request back until `min_bytes` are available (`fetch.max.wait.ms`).
    """
    min_bytes: Int32 = 0
    """Bytes of records to wait for (`fetch.min.bytes`); records that the group may acquire now count."""
    max_bytes: Int32 = 2147483647
    """Limit in bytes for the records of the whole response (`fetch.max.bytes`), shared equally by the partitions. The
    first batch is returned even if it is larger. 0 to acknowledge only.
    """
    max_records: Annotated[int, wire_field("int32", "1+")] = 0
    """Number of records to acquire (`max.poll.records`). In mode 0 it may be exceeded up to the end of a batch. 0 to
    acknowledge only.
    """
    batch_size: Annotated[int, wire_field("int32", "1+")] = 0
    """Number of records that the entries of `acquired_records` are aimed at (`max.poll.records`): in mode 0, records
    delivered for the first time are split there, at the next batch boundary.
    """
    share_acquire_mode: Annotated[int, wire_field("int8", "2+", ignorable=True)] = 0
    """`share.acquire.mode` of the consumer. 0, batch_optimized: whole batches are acquired. 1, record_limit: never more
    than `max_records`.
    """
    is_renew_ack: Annotated[bool, wire_field("bool", "2+")] = False
    """True if the acknowledgements may have type 4. The request then acquires no records, and all of its limits and its
    wait time must be 0, else it is rejected with INVALID_REQUEST.
    """
    topics: Annotated[list[FetchTopic], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that are new in the session, and partitions with acknowledgements. All partitions of the session are
    read.
    """
    forgotten_topics_data: Annotated[list[ForgottenTopic], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to remove from the share session."""


class LeaderIdAndEpoch(Message):
    """Current leader of a partition and its leader epoch, in a ShareFetch response."""

    leader_id: Int32 = 0
    """Node id of the leader, -1 if it is unknown. 0 where `current_leader` is not set."""
    leader_epoch: Int32 = 0
    """Leader epoch in which this node leads, -1 if unknown. 0 where `current_leader` is not set."""


class AcquiredRecords(Message):
    """Range of offsets that the member has acquired, with the number of deliveries so far."""

    first_offset: Int64 = 0
    """Offset of the first acquired record."""
    last_offset: Int64 = 0
    """Offset of the last acquired record, inclusive."""
    delivery_count: Int16 = 0
    """Number of deliveries of these records, with this one; 1 at the first. Records that were delivered
    `group.share.delivery.count.limit` times are archived instead of delivered again.
    """


class PartitionData(Message):
    """Partition in a ShareFetch response: batches, acquired ranges, and error of the acknowledgements."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 or an error of the fetch: NOT_LEADER_OR_FOLLOWER (find the leader), COORDINATOR_NOT_AVAILABLE (retry),
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the fetch, null if there is none."""
    acknowledge_error_code: Int16 = 0
    """0 if the acknowledgements are stored. INVALID_RECORD_STATE: a record is not acquired by this member any more,
    mostly because its lock expired. INVALID_REQUEST, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    TOPIC_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE.
    """
    acknowledge_error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the acknowledgements, null if there is none."""
    current_leader: Annotated[LeaderIdAndEpoch, wire_field("struct")] = field(default_factory=LeaderIdAndEpoch)
    """Current leader of the partition, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH in `error_code`. Without
    meaning otherwise.
    """
    records: Annotated[Opaque, wire_field("records", nullable="0")] = None
    """Batches as they are stored, with all acquired records; the client skips those that are not in `acquired_records`.
    Empty if none are acquired.
    """
    acquired_records: Annotated[list[AcquiredRecords], wire_field("[]struct")] = field(default_factory=list)
    """Records that this member alone may process until their locks expire, in ascending order."""


class ShareFetchableTopicResponse(Message):
    """Topic id in a ShareFetch response, with the acquired records of each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions, each with its own error codes."""


class NodeEndpoint(Message):
    """Node id, address and rack of a current leader that a ShareFetch response names."""

    node_id: Int32 = 0
    """Node id of the leader."""
    host: String = ""
    """Host name or address of the listener that the request came in on."""
    port: Int32 = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`broker.rack` of the leader, null if not set."""


class ShareFetchResponse(Message):
    """Response to ShareFetch: acquired records and results of acknowledgements, or one error for all."""

    SPEC: ClassVar[MessageSpec] = response(78, "1-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is. The response has its records also if it is throttled.
    """
    error_code: Int16 = 0
    """Error of the whole request: SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH (open a new session),
    SHARE_SESSION_LIMIT_REACHED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, or UNSUPPORTED_VERSION if share groups are
    disabled. 0 if the partitions have their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the whole request; may be null with an error."""
    acquisition_lock_timeout_ms: Annotated[int, wire_field("int32", "1+")] = 0
    """Time in ms after which the locks of the acquired records expire and other members may acquire them
    (`group.share.record.lock.duration.ms`, or that of the group). 0 with an error of the whole request.
    """
    responses: Annotated[list[ShareFetchableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic: partitions with records, an error, or acknowledgements, and those that are new in the session.
    """
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct")] = field(default_factory=list)
    """Addresses of the leaders named in `current_leader`, so that a client need not fetch metadata first."""
