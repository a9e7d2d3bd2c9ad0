"""Fetch (API 1): read record batches, for consumers, followers and the metadata quorum."""

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


class ReplicaState(Message):
    """Follower that sends a Fetch request: node id and broker epoch."""

    replica_id: Annotated[int, wire_field("int32", "15+")] = -1
    """Broker id of the follower, or node id of a voter or observer of the metadata quorum; -1 from a consumer."""
    replica_epoch: Annotated[int, wire_field("int64", "15+")] = -1
    """Broker epoch of the follower, -1 if it has none. A request of an earlier process of the broker is rejected with
    NOT_LEADER_OR_FOLLOWER, so that a restarted broker does not enter the ISR with data that it lost.
    """


class FetchPartition(Message):
    """Partition to read in a Fetch request: fetch offset, epochs and limit of bytes."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    current_leader_epoch: Annotated[int, wire_field("int32", "9+", ignorable=True)] = -1
    """Leader epoch that the reader knows, -1 for no check. An older one is rejected with FENCED_LEADER_EPOCH, a newer
    one with UNKNOWN_LEADER_EPOCH.
    """
    fetch_offset: Int64 = 0
    """Offset of the first record to read. From a follower it also states that all records below are in its log, which
    advances the high watermark.
    """
    last_fetched_epoch: Annotated[int, wire_field("int32", "12+")] = -1
    """Leader epoch of the last record in the log of a follower, -1 if there is none. The leader compares it with its
    own epochs and reports a mismatch in `diverging_epoch`. Consumers send -1.
    """
    log_start_offset: Annotated[int, wire_field("int64", "5+", ignorable=True)] = -1
    """Log start offset of a follower, -1 from a consumer. The lowest one of all replicas is the low watermark that
    DeleteRecords waits for.
    """
    partition_max_bytes: Int32 = 0
    """Limit in bytes for the records of this partition (`max.partition.fetch.bytes`). The first batch of the first
    partition with data is returned even if it is larger (KIP-74).
    """
    replica_directory_id: Annotated[bytes, wire_field("uuid", "17+", tagged="17+", tag=0, ignorable=True)] = ZERO_UUID
    """Directory id of the metadata log of a voter or observer, which identifies a voter together with its node id
    (KIP-853). Zero on all other topics.
    """
    high_watermark: Annotated[int, wire_field("int64", "18+", tagged="18+", tag=1, ignorable=True)] = (
        9223372036854775807
    )
    """High watermark that a follower of `__cluster_metadata` knows; the leader responds at once if its own is higher.
    -1 if unknown; 9223372036854775807, the default, from a node that does not send it.
    """


class FetchTopic(Message):
    """Topic in a Fetch request, with the partitions to read."""

    topic: Annotated[str, wire_field("string", "0-12", ignorable=True)] = ""
    """Topic name, up to version 12."""
    topic_id: Annotated[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 13 on. An id that the broker does not know yields UNKNOWN_TOPIC_ID in each
    partition.
    """
    partitions: Annotated[list[FetchPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to read with their positions."""


class ForgottenTopic(Message):
    """Topic in a Fetch request, with the partitions to remove from the fetch session."""

    topic: Annotated[str, wire_field("string", "7-12", ignorable=True)] = ""
    """Topic name, up to version 12."""
    topic_id: Annotated[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 13 on."""
    partitions: Annotated[list[int], wire_field("[]int32", "7+")] = field(default_factory=list)
    """Indexes of the partitions to remove."""


class FetchRequest(Message):
    """Request of a consumer or follower for record batches, with a limit of bytes and a time to wait."""

    SPEC: ClassVar[MessageSpec] = request(1, "4-18", "12+", "broker controller")
    """Version 4 adds transactions (KIP-98), 5 the log start offset (KIP-107), 7 incremental fetch sessions (KIP-227), 9
    leader epochs (KIP-320), 10 batches compressed with zstd (KIP-110), 11 the rack of a consumer (KIP-392), 12 the
    detection of diverging logs and tagged fields (KIP-595). Version 13 replaces topic names with topic ids (KIP-516),
    14 brings OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405), 15 the epoch of a follower (KIP-903), 16 the endpoints of new
    leaders in the response (KIP-951), 17 directory ids of voters (KIP-853), 18 the high watermark that a follower knows
    (KIP-1166). Versions 0 to 3 were removed in Apache Kafka 4.0.

    Flow: A consumer sends it to the leader, or to a replica in its rack. The broker holds the request back until
    `min_bytes` of records are available or `max_wait_ms` have passed. Followers send the same request to their leader:
    the fetch offset acknowledges all records below it, and with it the high watermark advances. Controllers and brokers
    replicate the metadata log with it.

    Errors: INCONSISTENT_TOPIC_ID: The topic was deleted and created again with another id after the fetch session was
    opened.
    """
    cluster_id: Annotated[
        str | None, wire_field("string", "12+", nullable="12+", tagged="12+", tag=0, ignorable=True)
    ] = None
    """Cluster that a node expects to fetch metadata from, null from consumers. A controller rejects another one with
    INCONSISTENT_CLUSTER_ID; the value matters on `__cluster_metadata` only.
    """
    replica_id: Annotated[int, wire_field("int32", "0-14")] = -1
    """Broker id of a follower, -1 from a consumer. From version 15 on it is a part of `replica_state`."""
    replica_state: Annotated[ReplicaState, wire_field("struct", "15+", tagged="15+", tag=1)] = field(
        default_factory=ReplicaState
    )
    """Identity of a follower. Consumers leave it out."""
    max_wait_ms: Int32 = 0
    """Longest time in ms that the broker holds the request back until `min_bytes` are available (`fetch.max.wait.ms`).
    0 means that the response is sent at once.
    """
    min_bytes: Int32 = 0
    """Bytes of records to wait for (`fetch.min.bytes`). An error in a partition ends the wait early, and so does a
    leader change; an unknown or unauthorized partition does only if all are.
    """
    max_bytes: Annotated[int, wire_field("int32", "3+", ignorable=True)] = 2147483647
    """Limit in bytes for the records of the whole response (`fetch.max.bytes`); the smaller of this and the
    `fetch.max.bytes` of the broker holds. The first batch is returned even if it is larger (KIP-74).
    """
    isolation_level: Annotated[int, wire_field("int8", "4+", ignorable=True)] = 0
    """0, read_uncommitted: all records below the high watermark. 1, read_committed: records below the last stable
    offset, and the list of aborted transactions among them. Followers read to the end of the log.
    """
    session_id: Annotated[int, wire_field("int32", "7+", ignorable=True)] = 0
    """Fetch session that the request belongs to, from an earlier response; 0 while there is none."""
    session_epoch: Annotated[int, wire_field("int32", "7+", ignorable=True)] = -1
    """Number of the request in its session, from 1 on; after 2147483647 follows 1. 0 requests a new session, -1 a full
    fetch that uses no session and closes the named one.
    """
    topics: Annotated[list[FetchTopic], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to read, in this order. In a session, only those that are new or have another fetch offset or limit.
    """
    forgotten_topics_data: Annotated[list[ForgottenTopic], wire_field("[]struct", "7+")] = field(default_factory=list)
    """Partitions to remove from the fetch session. Empty outside of sessions."""
    rack_id: Annotated[str, wire_field("string", "11+", ignorable=True)] = ""
    """`client.rack` of a consumer, empty if not set. With a rack-aware replica selector the leader names a replica in
    this rack in `preferred_read_replica`.
    """


class EpochEndOffset(Message):
    """Point where the log of a follower diverges from the leader's: leader epoch and its end offset."""

    epoch: Annotated[int, wire_field("int32", "12+")] = -1
    """Largest leader epoch of the leader that is not above the `last_fetched_epoch` of the request; -1 if the logs do
    not diverge.
    """
    end_offset: Annotated[int, wire_field("int64", "12+")] = -1
    """Offset after the last record of this epoch in the log of the leader. The follower truncates to it, or to its own
    end of that epoch if lower. -1 if the logs do not diverge.
    """


class LeaderIdAndEpoch(Message):
    """Current leader of a partition and its leader epoch, in a Fetch response."""

    leader_id: Annotated[int, wire_field("int32", "12+")] = -1
    """Node id of the leader, -1 if there is none or it is unknown."""
    leader_epoch: Annotated[int, wire_field("int32", "12+")] = -1
    """Leader epoch in which this node leads, -1 if unknown."""


class SnapshotId(Message):
    """Id of a metadata snapshot to load instead of the log: end offset and epoch."""

    end_offset: Int64 = -1
    """Offset after the last record that the snapshot covers; -1 without a snapshot."""
    epoch: Int32 = -1
    """Leader epoch of the last record that the snapshot covers; -1 without a snapshot."""


class AbortedTransaction(Message):
    """Aborted transaction with records in the returned batches: producer id and first offset."""

    producer_id: Annotated[int, wire_field("int64", "4+")] = 0
    """Producer id of the transaction. The consumer skips its transactional records from the first offset up to the
    abort marker.
    """
    first_offset: Annotated[int, wire_field("int64", "4+")] = 0
    """Offset of the first record of the transaction; it may lie before the returned records."""


class PartitionData(Message):
    """Partition in a Fetch response: record batches and offsets, or an error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 or an error such as OFFSET_OUT_OF_RANGE (reset the position), NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
    (find the leader), UNKNOWN_LEADER_EPOCH (retry), UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
    KAFKA_STORAGE_ERROR.
    """
    high_watermark: Int64 = 0
    """Offset after the last record that is replicated to the whole ISR; consumers read below it. -1 while it is
    unknown, and with an error but OFFSET_MOVED_TO_TIERED_STORAGE.
    """
    last_stable_offset: Annotated[int, wire_field("int64", "4+", ignorable=True)] = -1
    """Offset of the first record of the oldest open transaction, or the high watermark if none is open; read_committed
    consumers read below it. -1 with an error.
    """
    log_start_offset: Annotated[int, wire_field("int64", "5+", ignorable=True)] = -1
    """Offset of the first record that is still there. -1 with an error but OFFSET_MOVED_TO_TIERED_STORAGE."""
    diverging_epoch: Annotated[EpochEndOffset, wire_field("struct", "12+", tagged="12+", tag=0)] = field(
        default_factory=EpochEndOffset
    )
    """Point to truncate to, when the log of the follower has records that the leader does not have. Left out otherwise.
    """
    current_leader: Annotated[LeaderIdAndEpoch, wire_field("struct", "12+", tagged="12+", tag=1)] = field(
        default_factory=LeaderIdAndEpoch
    )
    """Current leader of the partition, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH from version 16 on. Always
    present on `__cluster_metadata`.
    """
    snapshot_id: Annotated[SnapshotId, wire_field("struct", "12+", tagged="12+", tag=2)] = field(
        default_factory=SnapshotId
    )
    """Snapshot to load with FetchSnapshot, when the fetch offset on `__cluster_metadata` is below the log start offset.
    Left out otherwise.
    """
    aborted_transactions: Annotated[
        list[AbortedTransaction] | None, wire_field("[]struct", "4+", nullable="4+", ignorable=True)
    ] = field(default_factory=list)
    """Aborted transactions among the returned records, for read_committed consumers to skip their records. Null with
    read_uncommitted and with most errors.
    """
    preferred_read_replica: Annotated[int, wire_field("int32", "11+")] = -1
    """Broker id of a replica in the rack of the consumer, which reads from there until its metadata expires; no records
    come with it. -1 to go on reading here.
    """
    records: Annotated[Opaque, wire_field("records", nullable="0+")] = None
    """Batches as they are stored, starting with the batch that contains the fetch offset; the client drops the records
    below it. The last batch may be cut off and is then ignored. Empty if there are none.
    """


class FetchableTopicResponse(Message):
    """Topic in a Fetch response, with the records or the error of each partition."""

    topic: Annotated[str, wire_field("string", "0-12", ignorable=True)] = ""
    """Topic name, up to version 12."""
    topic_id: Annotated[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 13 on."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions, each with its own error code."""


class NodeEndpoint(Message):
    """Node id, address and rack of a current leader that a Fetch response names."""

    node_id: Annotated[int, wire_field("int32", "16+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "16+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("int32", "16+")] = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", "16+", nullable="16+")] = None
    """`broker.rack` of the leader, null if not set."""


class FetchResponse(Message):
    """Response to Fetch: record batches of partitions, or an error for the whole request."""

    SPEC: ClassVar[MessageSpec] = response(1, "4-18", "12+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is. A throttled response has no records.
    """
    error_code: Annotated[int, wire_field("int16", "7+", ignorable=True)] = 0
    """Error of the whole request, mostly of its session: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
    FETCH_SESSION_TOPIC_ID_ERROR make the client start a new one. 0 if the partitions have their own.
    """
    session_id: Annotated[int, wire_field("int32", "7+")] = 0
    """Id of the fetch session to use from now on, 0 if the broker opened none. The broker opens none when its cache is
    full.
    """
    responses: Annotated[list[FetchableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic. In a session, only partitions with records, an error, or a changed offset."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "16+", tagged="16+", tag=0)] = field(
        default_factory=list
    )
    """Addresses of the leaders named in `current_leader`, so that a client need not fetch metadata first."""
