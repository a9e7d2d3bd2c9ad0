"""FetchSnapshot (api 59): read bytes of a metadata snapshot.

Made by KIP-630; version 1 brings directory ids (KIP-853).
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
    String,
    request,
    response,
    wire_field,
)


class FetchSnapshotRequestSnapshotId(Message):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotRequestPartitionSnapshot(Message):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: A[FetchSnapshotRequestSnapshotId, wire_field("struct")] = field(
        default_factory=FetchSnapshotRequestSnapshotId
    )
    position: Int64 = 0
    replica_directory_id: A[bytes, wire_field("uuid", "1+", tagged="1+", tag=0, ignorable=True)] = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(Message):
    name: String = ""
    partitions: A[list[FetchSnapshotRequestPartitionSnapshot], wire_field("[]struct")] = field(default_factory=list)


class FetchSnapshotRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(59, "0-1", "0+", "controller")
    cluster_id: A[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: A[list[FetchSnapshotRequestTopicSnapshot], wire_field("[]struct")] = field(default_factory=list)


class FetchSnapshotResponseSnapshotId(Message):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: A[FetchSnapshotResponseSnapshotId, wire_field("struct")] = field(
        default_factory=FetchSnapshotResponseSnapshotId
    )
    current_leader: A[LeaderIdAndEpoch, wire_field("struct", tagged="0+", tag=0)] = field(
        default_factory=LeaderIdAndEpoch
    )
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: A[Opaque, wire_field("records")] = None


class FetchSnapshotResponseTopicSnapshot(Message):
    name: String = ""
    partitions: A[list[FetchSnapshotResponsePartitionSnapshot], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "1+")] = 0
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class FetchSnapshotResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(59, "0-1", "0+")
    throttle_time_ms: A[int, wire_field("int32", ignorable=True)] = 0
    error_code: Int16 = 0
    topics: A[list[FetchSnapshotResponseTopicSnapshot], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
