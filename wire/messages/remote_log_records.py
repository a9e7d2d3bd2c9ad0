"""Records of `__remote_log_metadata` (KIP-405): segments in remote storage, types 0 to 3.

Partition leaders write them when they copy or delete segments of topics with `remote.storage.enable=true`. Brokers with
a replica of such a topic read them to find its segments in remote storage.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int32, Int64, Message, MessageSpec, String, Uuid, data, wire_field


class RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(Message):
    """Topic and partition of the copied segment, in a record of type 0."""

    name: String = ""
    """Topic name."""
    id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partition: Int32 = 0
    """Index of the partition in its topic."""


class RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(Message):
    """Id of a copy of a segment in remote storage, in a record of type 0."""

    topic_id_partition: Annotated[RemoteLogSegmentMetadataRecordTopicIdPartitionEntry, wire_field("struct")] = field(
        default_factory=RemoteLogSegmentMetadataRecordTopicIdPartitionEntry
    )
    """Partition that the segment belongs to."""
    id: Uuid = ZERO_UUID
    """Random UUID of this copy of the segment. A further attempt to copy has another one."""


class RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(Message):
    """Leader epoch of records in the copied segment, with its first offset there."""

    leader_epoch: Int32 = 0
    """Number of the leader epoch."""
    offset: Int64 = 0
    """Offset of the first record of this epoch in the segment."""


class RemoteLogSegmentMetadataRecord(Message):
    """Start of a copy of a segment to remote storage, type 0: offsets, size and leader epochs."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 0)
    remote_log_segment_id: Annotated[RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry, wire_field("struct")] = (
        field(default_factory=RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry)
    )
    """Identity of the copy, which later records refer to."""
    start_offset: Int64 = 0
    """Offset of the first record."""
    end_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    broker_id: Int32 = 0
    """Node id of the leader that wrote this record."""
    max_timestamp_ms: Int64 = 0
    """Largest timestamp of the records in the segment, in ms since the epoch. Retention by time uses it."""
    event_timestamp_ms: Int64 = 0
    """Time in ms since the epoch when this record was written."""
    segment_leader_epochs: Annotated[
        list[RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry], wire_field("[]struct")
    ] = field(default_factory=list)
    """Leader epochs of the records in the segment, at least one."""
    segment_size_in_bytes: Int32 = 0
    """Size of the segment in bytes, without its indexes."""
    custom_metadata: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Data of the `RemoteStorageManager` plug-in for this segment, null if there is none (KIP-917)."""
    remote_log_segment_state: Int8 = 0
    """0 COPY_SEGMENT_STARTED; later states come in update records."""
    txn_index_empty: Annotated[bool, wire_field("bool", tagged="0+", tag=0)] = False
    """True if no transaction was aborted in the segment, so that a consumer need not fetch its transaction index. False
    also in records of older brokers, which do not have the field (KIP-1058).
    """


class RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry(Message):
    """Leader epoch of records in a segment, with its first offset there, in a record of type 3."""

    leader_epoch: Int32 = 0
    """Number of the leader epoch."""
    offset: Int64 = 0
    """Offset of the first record of this epoch in the segment."""


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    """Segment in remote storage with its current state, in a snapshot of one partition; type 3."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 3)
    segment_id: Uuid = ZERO_UUID
    """UUID of this copy of the segment. The partition is known from the snapshot."""
    start_offset: Int64 = 0
    """Offset of the first record."""
    end_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    broker_id: Int32 = 0
    """Node id of the broker that wrote the last state."""
    max_timestamp_ms: Int64 = 0
    """Largest timestamp of the records in the segment, in ms since the epoch."""
    event_timestamp_ms: Int64 = 0
    """Time of the last state in ms since the epoch."""
    segment_leader_epochs: Annotated[
        list[RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry], wire_field("[]struct")
    ] = field(default_factory=list)
    """Leader epochs of the records in the segment, at least one."""
    segment_size_in_bytes: Int32 = 0
    """Size of the segment in bytes, without its indexes."""
    custom_metadata: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Data of the `RemoteStorageManager` plug-in for this segment, null if there is none (KIP-917)."""
    remote_log_segment_state: Int8 = 0
    """0 COPY_SEGMENT_STARTED, 1 COPY_SEGMENT_FINISHED, 2 DELETE_SEGMENT_STARTED, 3 DELETE_SEGMENT_FINISHED."""
    txn_index_empty: Annotated[bool, wire_field("bool", tagged="0+", tag=0)] = False
    """True if no transaction was aborted in the segment, so that a consumer need not fetch its transaction index."""


class RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(Message):
    """Topic and partition of the segment that changes state, in a record of type 1."""

    name: String = ""
    """Topic name."""
    id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partition: Int32 = 0
    """Index of the partition in its topic."""


class RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(Message):
    """Id of the segment copy in remote storage that changes state, in a record of type 1."""

    topic_id_partition: Annotated[RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry, wire_field("struct")] = (
        field(default_factory=RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry)
    )
    """Partition that the segment belongs to."""
    id: Uuid = ZERO_UUID
    """UUID of this copy of the segment, from the record of type 0."""


class RemoteLogSegmentMetadataUpdateRecord(Message):
    """New state of a segment in remote storage, type 1: copy finished, deletion started or finished."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 1)
    remote_log_segment_id: Annotated[
        RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry, wire_field("struct")
    ] = field(default_factory=RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry)
    """Identity of the copy, from its record of type 0."""
    broker_id: Int32 = 0
    """Node id of the leader that wrote this record."""
    event_timestamp_ms: Int64 = 0
    """Time in ms since the epoch when this record was written."""
    custom_metadata: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Data that the `RemoteStorageManager` plug-in returned for the copied segment, null if there is none (KIP-917)."""
    remote_log_segment_state: Int8 = 0
    """1 COPY_SEGMENT_FINISHED: consumers can read the segment. 2 DELETE_SEGMENT_STARTED, 3 DELETE_SEGMENT_FINISHED: it
    is being deleted, or is deleted.
    """


class RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(Message):
    """Topic and partition of which all segments in remote storage are deleted."""

    name: String = ""
    """Topic name."""
    id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partition: Int32 = 0
    """Index of the partition in its topic."""


class RemotePartitionDeleteMetadataRecord(Message):
    """Progress of deleting all segments of a partition in remote storage, type 2."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 2)
    topic_id_partition: Annotated[RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry, wire_field("struct")] = (
        field(default_factory=RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry)
    )
    """Partition with all its segments."""
    broker_id: Int32 = 0
    """Node id of the broker or controller that wrote this record."""
    event_timestamp_ms: Int64 = 0
    """Time in ms since the epoch when this record was written."""
    remote_partition_delete_state: Int8 = 0
    """0 DELETE_PARTITION_MARKED, 1 DELETE_PARTITION_STARTED, 2 DELETE_PARTITION_FINISHED."""
