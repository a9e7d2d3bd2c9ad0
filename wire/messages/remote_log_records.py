"""`__remote_log_metadata` records."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int32, Int64, Message, MessageSpec, String, Uuid, data, wire_field


class RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(Message):
    name: String = ""
    id: Uuid = ZERO_UUID
    partition: Int32 = 0


class RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(Message):
    topic_id_partition: A[RemoteLogSegmentMetadataRecordTopicIdPartitionEntry, wire_field("struct")] = field(
        default_factory=RemoteLogSegmentMetadataRecordTopicIdPartitionEntry
    )
    id: Uuid = ZERO_UUID


class RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(Message):
    leader_epoch: Int32 = 0
    offset: Int64 = 0


class RemoteLogSegmentMetadataRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 0)
    remote_log_segment_id: A[RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry, wire_field("struct")] = field(
        default_factory=RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry
    )
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    broker_id: Int32 = 0
    max_timestamp_ms: Int64 = 0
    event_timestamp_ms: Int64 = 0
    segment_leader_epochs: A[list[RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry], wire_field("[]struct")] = (
        field(default_factory=list)
    )
    segment_size_in_bytes: Int32 = 0
    custom_metadata: A[bytes | None, wire_field("bytes", nullable="0+")] = None
    remote_log_segment_state: Int8 = 0
    txn_index_empty: A[bool, wire_field("bool", tagged="0+", tag=0)] = False


class RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry(Message):
    leader_epoch: Int32 = 0
    offset: Int64 = 0


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 3)
    segment_id: Uuid = ZERO_UUID
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    broker_id: Int32 = 0
    max_timestamp_ms: Int64 = 0
    event_timestamp_ms: Int64 = 0
    segment_leader_epochs: A[
        list[RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry], wire_field("[]struct")
    ] = field(default_factory=list)
    segment_size_in_bytes: Int32 = 0
    custom_metadata: A[bytes | None, wire_field("bytes", nullable="0+")] = None
    remote_log_segment_state: Int8 = 0
    txn_index_empty: A[bool, wire_field("bool", tagged="0+", tag=0)] = False


class RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(Message):
    name: String = ""
    id: Uuid = ZERO_UUID
    partition: Int32 = 0


class RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(Message):
    topic_id_partition: A[RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry, wire_field("struct")] = field(
        default_factory=RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry
    )
    id: Uuid = ZERO_UUID


class RemoteLogSegmentMetadataUpdateRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 1)
    remote_log_segment_id: A[RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry, wire_field("struct")] = field(
        default_factory=RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry
    )
    broker_id: Int32 = 0
    event_timestamp_ms: Int64 = 0
    custom_metadata: A[bytes | None, wire_field("bytes", nullable="0+")] = None
    remote_log_segment_state: Int8 = 0


class RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(Message):
    name: String = ""
    id: Uuid = ZERO_UUID
    partition: Int32 = 0


class RemotePartitionDeleteMetadataRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 2)
    topic_id_partition: A[RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry, wire_field("struct")] = field(
        default_factory=RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry
    )
    broker_id: Int32 = 0
    event_timestamp_ms: Int64 = 0
    remote_partition_delete_state: Int8 = 0
