"""`__consumer_offsets`, record types 10 to 15: share groups (KIP-932)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int32, Int64, Message, MessageSpec, String, Uuid, data, wire_field


class ShareGroupCurrentMemberAssignmentKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 14)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ShareGroupCurrentMemberAssignmentValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 14)
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: A[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)


class ShareGroupMemberMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 10)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class ShareGroupMemberMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 10)
    rack_id: A[str | None, wire_field("string", nullable="0+")] = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: A[list[str], wire_field("[]string")] = field(default_factory=list)


class ShareGroupMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 11)
    group_id: A[str, wire_field("string", "0")] = ""


class ShareGroupMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 11)
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupStatePartitionMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 15)
    group_id: A[str, wire_field("string", "0")] = ""


class TopicPartitionsInfo(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class TopicInfo(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 15)
    initializing_topics: A[list[TopicPartitionsInfo], wire_field("[]struct")] = field(default_factory=list)
    initialized_topics: A[list[TopicPartitionsInfo], wire_field("[]struct")] = field(default_factory=list)
    deleting_topics: A[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)


class ShareGroupTargetAssignmentMemberKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 13)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class TopicPartition(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ShareGroupTargetAssignmentMemberValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 13)
    topic_partitions: A[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)


class ShareGroupTargetAssignmentMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 12)
    group_id: A[str, wire_field("string", "0")] = ""


class ShareGroupTargetAssignmentMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 12)
    assignment_epoch: Int32 = 0
    assignment_timestamp: A[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0
