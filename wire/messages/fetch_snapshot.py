"""FetchSnapshot (API 59): read parts of a metadata snapshot (KIP-630)."""

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
    request,
    response,
    wire_field,
)


class FetchSnapshotRequestSnapshotId(Message):
    """Id of the metadata snapshot to read: end offset and epoch."""

    end_offset: Int64 = 0
    """Offset after the last record that the snapshot covers."""
    epoch: Int32 = 0
    """Leader epoch of the last record that the snapshot covers."""


class FetchSnapshotRequestPartitionSnapshot(Message):
    """Metadata snapshot to read, with the position in bytes to read from."""

    partition: Int32 = 0
    """Index of the partition; 0."""
    current_leader_epoch: Int32 = 0
    """Leader epoch that the follower knows, -1 if unknown. An older one is rejected with FENCED_LEADER_EPOCH, a newer
    one with UNKNOWN_LEADER_EPOCH.
    """
    snapshot_id: Annotated[FetchSnapshotRequestSnapshotId, wire_field("struct")] = field(
        default_factory=FetchSnapshotRequestSnapshotId
    )
    """Name of the snapshot, from the Fetch response. If the leader has deleted it, SNAPSHOT_NOT_FOUND makes the
    follower fetch again.
    """
    position: Int64 = 0
    """Byte position to read from. A negative one, or one not below the size, gets POSITION_OUT_OF_RANGE."""
    replica_directory_id: Annotated[bytes, wire_field("uuid", "1+", tagged="1+", tag=0, ignorable=True)] = ZERO_UUID
    """Id of the metadata log directory of the follower."""


class FetchSnapshotRequestTopicSnapshot(Message):
    """Topic `__cluster_metadata` with its only partition, in a FetchSnapshot request."""

    name: String = ""
    """`__cluster_metadata`. For any other name or partition, the partition has UNKNOWN_TOPIC_OR_PARTITION."""
    partitions: Annotated[list[FetchSnapshotRequestPartitionSnapshot], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log, exactly one."""


class FetchSnapshotRequest(Message):
    """Request of a voter or observer to the quorum leader for a part of a metadata snapshot."""

    SPEC: ClassVar[MessageSpec] = request(59, "0-1", "0+", "controller")
    """Version 1 adds the directory id of the follower (KIP-853).

    Flow: A follower of the metadata log sends it to the leader after a Fetch response that names a snapshot, because
    its offset has been deleted. It repeats the request with the next position until it has the whole snapshot.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    replica_id: Int32 = -1
    """Node id of the follower."""
    max_bytes: Int32 = 2147483647
    """Limit in bytes for the part that is returned."""
    topics: Annotated[list[FetchSnapshotRequestTopicSnapshot], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log, exactly one topic."""


class FetchSnapshotResponseSnapshotId(Message):
    """Id of the returned metadata snapshot: end offset and epoch."""

    end_offset: Int64 = 0
    """Offset after the last record that the snapshot covers."""
    epoch: Int32 = 0
    """Leader epoch of the last record that the snapshot covers."""


class LeaderIdAndEpoch(Message):
    """Current leader of the metadata quorum and its epoch, in a FetchSnapshot response."""

    leader_id: Int32 = 0
    """Node id of the leader, -1 if it is unknown."""
    leader_epoch: Int32 = 0
    """Highest epoch that the receiver knows."""


class FetchSnapshotResponsePartitionSnapshot(Message):
    """Bytes of a metadata snapshot from a position on, and its size; or an error code."""

    index: Int32 = 0
    """Index of the partition; 0."""
    error_code: Int16 = 0
    """0, or SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
    """
    snapshot_id: Annotated[FetchSnapshotResponseSnapshotId, wire_field("struct")] = field(
        default_factory=FetchSnapshotResponseSnapshotId
    )
    """Name of the snapshot that the part belongs to."""
    current_leader: Annotated[LeaderIdAndEpoch, wire_field("struct", tagged="0+", tag=0)] = field(
        default_factory=LeaderIdAndEpoch
    )
    """Leader that the receiver knows."""
    size: Int64 = 0
    """Size of the whole snapshot in bytes. The follower reads until it has them all."""
    position: Int64 = 0
    """Byte position of the part in the snapshot."""
    unaligned_records: Annotated[Opaque, wire_field("records")] = None
    """Bytes of the snapshot file from the position on; they may begin and end inside of a batch."""


class FetchSnapshotResponseTopicSnapshot(Message):
    """Topic `__cluster_metadata` with its only partition, in a FetchSnapshot response."""

    name: String = ""
    """`__cluster_metadata`."""
    partitions: Annotated[list[FetchSnapshotResponsePartitionSnapshot], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log."""


class NodeEndpoint(Message):
    """Node id and address of the quorum leader that a FetchSnapshot response names."""

    node_id: Annotated[int, wire_field("int32", "1+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of that listener."""


class FetchSnapshotResponse(Message):
    """Response to FetchSnapshot: a part of a metadata snapshot, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(59, "0-1", "0+")
    throttle_time_ms: Annotated[int, wire_field("int32", ignorable=True)] = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST or CLUSTER_AUTHORIZATION_FAILED. 0 if the
    partition has its own.
    """
    topics: Annotated[list[FetchSnapshotResponseTopicSnapshot], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log with a part of its snapshot."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
    """Address of the leader in the response, from version 1 on."""
