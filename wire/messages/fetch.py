"""Fetch (api 1): read record batches, for consumers, followers and the metadata quorum.

Version 4 brings transactions (KIP-98), 5 the log start (KIP-107), 7 sessions (KIP-227), 9 leader epochs (KIP-320), 10
zstd (KIP-110), 11 the reader's rack (KIP-392), 12 where logs diverge (KIP-595), 13 topic ids (KIP-516), 15 a
follower's epoch (KIP-903), 16 the new leader in an answer (KIP-951), 17 directory ids (KIP-853), 18 the high
watermark a follower knows (KIP-1166).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

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
    replica_id: A[int, wire_field("int32", "15+")] = -1
    replica_epoch: A[int, wire_field("int64", "15+")] = -1


class FetchPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: A[int, wire_field("int32", "9+", ignorable=True)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: A[int, wire_field("int32", "12+")] = -1
    log_start_offset: A[int, wire_field("int64", "5+", ignorable=True)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: A[bytes, wire_field("uuid", "17+", tagged="17+", tag=0, ignorable=True)] = ZERO_UUID
    high_watermark: A[int, wire_field("int64", "18+", tagged="18+", tag=1, ignorable=True)] = 9223372036854775807


class FetchTopic(Message):
    topic: A[str, wire_field("string", "0-12", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    partitions: A[list[FetchPartition], wire_field("[]struct")] = field(default_factory=list)


class ForgottenTopic(Message):
    topic: A[str, wire_field("string", "7-12", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32", "7+")] = field(default_factory=list)


class FetchRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(1, "4-18", "12+", "broker controller")
    cluster_id: A[str | None, wire_field("string", "12+", nullable="12+", tagged="12+", tag=0, ignorable=True)] = None
    replica_id: A[int, wire_field("int32", "0-14")] = -1
    replica_state: A[ReplicaState, wire_field("struct", "15+", tagged="15+", tag=1)] = field(
        default_factory=ReplicaState
    )
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: A[int, wire_field("int32", "3+", ignorable=True)] = 2147483647
    isolation_level: A[int, wire_field("int8", "4+", ignorable=True)] = 0
    session_id: A[int, wire_field("int32", "7+", ignorable=True)] = 0
    session_epoch: A[int, wire_field("int32", "7+", ignorable=True)] = -1
    topics: A[list[FetchTopic], wire_field("[]struct")] = field(default_factory=list)
    forgotten_topics_data: A[list[ForgottenTopic], wire_field("[]struct", "7+")] = field(default_factory=list)
    rack_id: A[str, wire_field("string", "11+", ignorable=True)] = ""


class EpochEndOffset(Message):
    epoch: A[int, wire_field("int32", "12+")] = -1
    end_offset: A[int, wire_field("int64", "12+")] = -1


class LeaderIdAndEpoch(Message):
    leader_id: A[int, wire_field("int32", "12+")] = -1
    leader_epoch: A[int, wire_field("int32", "12+")] = -1


class SnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message):
    producer_id: A[int, wire_field("int64", "4+")] = 0
    first_offset: A[int, wire_field("int64", "4+")] = 0


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: A[int, wire_field("int64", "4+", ignorable=True)] = -1
    log_start_offset: A[int, wire_field("int64", "5+", ignorable=True)] = -1
    diverging_epoch: A[EpochEndOffset, wire_field("struct", "12+", tagged="12+", tag=0)] = field(
        default_factory=EpochEndOffset
    )
    current_leader: A[LeaderIdAndEpoch, wire_field("struct", "12+", tagged="12+", tag=1)] = field(
        default_factory=LeaderIdAndEpoch
    )
    snapshot_id: A[SnapshotId, wire_field("struct", "12+", tagged="12+", tag=2)] = field(default_factory=SnapshotId)
    aborted_transactions: A[
        list[AbortedTransaction] | None, wire_field("[]struct", "4+", nullable="4+", ignorable=True)
    ] = field(default_factory=list)
    preferred_read_replica: A[int, wire_field("int32", "11+")] = -1
    records: A[Opaque, wire_field("records", nullable="0+")] = None


class FetchableTopicResponse(Message):
    topic: A[str, wire_field("string", "0-12", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "16+")] = 0
    host: A[str, wire_field("string", "16+")] = ""
    port: A[int, wire_field("int32", "16+")] = 0
    rack: A[str | None, wire_field("string", "16+", nullable="16+")] = None


class FetchResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(1, "4-18", "12+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: A[int, wire_field("int16", "7+", ignorable=True)] = 0
    session_id: A[int, wire_field("int32", "7+")] = 0
    responses: A[list[FetchableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "16+", tagged="16+", tag=0)] = field(
        default_factory=list
    )
