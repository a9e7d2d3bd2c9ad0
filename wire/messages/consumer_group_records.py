"""`__consumer_offsets`, record types 3 to 8 and 16: groups of the new consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uuid,
    data,
    wire_field,
)


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 8)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    assignment_epochs: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = field(
        default_factory=list
    )


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 8)
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: A[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)
    partitions_pending_revocation: A[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)


class ConsumerGroupMemberMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 5)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class ClassicProtocol(Message):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Message):
    session_timeout_ms: Int32 = 0
    supported_protocols: A[list[ClassicProtocol], wire_field("[]struct")] = field(default_factory=list)


class ConsumerGroupMemberMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 5)
    instance_id: A[str | None, wire_field("string", nullable="0+")] = ""
    rack_id: A[str | None, wire_field("string", nullable="0+")] = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: A[list[str], wire_field("[]string")] = field(default_factory=list)
    subscribed_topic_regex: A[str | None, wire_field("string", nullable="0+")] = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: A[str | None, wire_field("string", nullable="0+")] = ""
    classic_member_metadata: A[
        ClassicMemberMetadata | None, wire_field("struct", nullable="0+", tagged="0+", tag=0)
    ] = field(default_factory=ClassicMemberMetadata)


class ConsumerGroupMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 3)
    group_id: A[str, wire_field("string", "0")] = ""


class ConsumerGroupMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 3)
    epoch: Int32 = 0
    metadata_hash: A[int, wire_field("int64", tagged="0+", tag=0)] = 0


class ConsumerGroupPartitionMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 4)
    group_id: A[str, wire_field("string", "0")] = ""


class PartitionMetadata(Message):
    partition: Int32 = 0
    racks: A[list[str], wire_field("[]string")] = field(default_factory=list)


class TopicMetadata(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: A[list[PartitionMetadata], wire_field("[]struct")] = field(default_factory=list)


class ConsumerGroupPartitionMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 4)
    topics: A[list[TopicMetadata], wire_field("[]struct")] = field(default_factory=list)


class ConsumerGroupRegularExpressionKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 16)
    group_id: A[str, wire_field("string", "0")] = ""
    regular_expression: A[str, wire_field("string", "0")] = ""


class ConsumerGroupRegularExpressionValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 16)
    topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    version: Int64 = 0
    timestamp: Int64 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 7)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class TopicPartition(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ConsumerGroupTargetAssignmentMemberValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 7)
    topic_partitions: A[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 6)
    group_id: A[str, wire_field("string", "0")] = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 6)
    assignment_epoch: Int32 = 0
    assignment_timestamp: A[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0
