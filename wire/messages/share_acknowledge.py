"""ShareAcknowledge (API 79): accept, release, reject or renew acquired records of a share group (KIP-932)."""

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


class AcknowledgePartition(Message):
    """Partition in a ShareAcknowledge request, with the acknowledgements of its records."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], wire_field("[]struct")] = field(default_factory=list)
    """Ranges in ascending order. If one of them is rejected, none of the partition takes effect."""


class AcknowledgeTopic(Message):
    """Topic id in a ShareAcknowledge request, with the acknowledgements of its partitions."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic. An unknown one yields UNKNOWN_TOPIC_ID in each partition."""
    partitions: Annotated[list[AcknowledgePartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with the records to acknowledge."""


class ShareAcknowledgeRequest(Message):
    """Request of a share group member to acknowledge records that it acquired, without fetching."""

    SPEC: ClassVar[MessageSpec] = request(79, "1-2", "0+", "broker")
    """Version 0 was an early access in Apache Kafka 4.0 and is removed, version 1 is that of KIP-932. Version 2 adds
    acknowledgements that renew locks (KIP-1222).

    Flow: A member sends it to the leader of the share-partitions when it acknowledges without fetching, and when it
    closes its share session.
    """
    group_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`group.id` of the share consumer. Null is rejected with INVALID_REQUEST."""
    member_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Id of the member, as in its ShareGroupHeartbeat requests. Null, an empty one or more than 36 characters are
    rejected with INVALID_REQUEST.
    """
    share_session_epoch: Int32 = 0
    """Number of the request in its share session, counted together with ShareFetch requests; after 2147483647 follows
    1. -1 closes the session, which releases all records still acquired. 0 is rejected with INVALID_SHARE_SESSION_EPOCH.
    """
    is_renew_ack: Annotated[bool, wire_field("bool", "2+")] = False
    """True if the acknowledgements may have type 4. If false, that type is rejected with INVALID_REQUEST."""
    topics: Annotated[list[AcknowledgeTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the records to acknowledge."""


class LeaderIdAndEpoch(Message):
    """Current leader of a partition and its leader epoch, in a ShareAcknowledge response."""

    leader_id: Int32 = 0
    """Node id of the leader, -1 if it is unknown. 0 where `current_leader` is not set."""
    leader_epoch: Int32 = 0
    """Leader epoch in which this node leads, -1 if unknown. 0 where `current_leader` is not set."""


class PartitionData(Message):
    """Error code of the acknowledgements of a partition; 0 if they took effect."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if they are stored. INVALID_RECORD_STATE: a record is not acquired by this member any more, mostly because its
    lock expired. INVALID_REQUEST, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
    NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    current_leader: Annotated[LeaderIdAndEpoch, wire_field("struct")] = field(default_factory=LeaderIdAndEpoch)
    """Current leader of the partition, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH. Without meaning otherwise.
    """


class ShareAcknowledgeTopicResponse(Message):
    """Topic id in a ShareAcknowledge response, with an error code for each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class NodeEndpoint(Message):
    """Node id, address and rack of a current leader that a ShareAcknowledge response names."""

    node_id: Int32 = 0
    """Node id of the leader."""
    host: String = ""
    """Host name or address of the listener that the request came in on."""
    port: Int32 = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`broker.rack` of the leader, null if not set."""


class ShareAcknowledgeResponse(Message):
    """Response to ShareAcknowledge: an error code for each partition, sent when the state is stored."""

    SPEC: ClassVar[MessageSpec] = response(79, "1-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH (open a new session with
    ShareFetch), GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, or UNSUPPORTED_VERSION if share groups are disabled. 0 if
    the partitions have their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error of the whole request; may be null with an error."""
    acquisition_lock_timeout_ms: Annotated[int, wire_field("int32", "2+", ignorable=True)] = 0
    """Time in ms after which the lock of an acquired record expires (`group.share.record.lock.duration.ms`, or that of
    the group); a renewed lock lasts as long. 0 with an error of the whole request.
    """
    responses: Annotated[list[ShareAcknowledgeTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic. Empty if the whole request failed."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct")] = field(default_factory=list)
    """Addresses of the leaders named in `current_leader`, so that a client need not fetch metadata first."""
