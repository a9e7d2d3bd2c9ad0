"""Records of consumer groups in `__consumer_offsets` (KIP-848): types 3 to 8 and 16, each a key and a value."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Key, type 8, of the current assignment of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 8)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class TopicPartitions(Message):
    """Topic with partitions that a member has now, or still has to revoke."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""
    assignment_epochs: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = field(
        default_factory=list
    )
    """Member epoch in which each partition was assigned, in the order of `partitions`. Offset commits of an older epoch
    are rejected. Null or left out in records of versions before 4.3; then the member epoch counts (KIP-1251).
    """


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Value, type 8: partitions and epoch of a member now. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 8)
    member_epoch: Int32 = 0
    """Member epoch that the next heartbeat must have."""
    previous_member_epoch: Int32 = 0
    """Member epoch before, also accepted from the member, in case the response with the new one was lost."""
    state: Int8 = 0
    """0 stable, 1 partitions are to be revoked by the member, 2 partitions are still to be released by other members.
    Other values count as unknown.
    """
    assigned_partitions: Annotated[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that the member may use."""
    partitions_pending_revocation: Annotated[list[TopicPartitions], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions that the member still has and must revoke."""


class ConsumerGroupMemberMetadataKey(Message):
    """Key, type 5, of a member of a consumer group: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 5)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class ClassicProtocol(Message):
    """Client-side assignor that a member on the classic protocol supports, with its subscription."""

    name: String = ""
    """Name of the client-side assignor, such as `range`."""
    metadata: Bytes = b""
    """Serialized `ConsumerProtocolSubscription`, with its version in the first two bytes."""


class ClassicMemberMetadata(Message):
    """JoinGroup parameters of a member of a consumer group that uses the classic protocol."""

    session_timeout_ms: Int32 = 0
    """Session timeout of the member in ms."""
    supported_protocols: Annotated[list[ClassicProtocol], wire_field("[]struct")] = field(default_factory=list)
    """Assignors that the member supports, the preferred one first."""


class ConsumerGroupMemberMetadataValue(Message):
    """Value, type 5: client and subscription of a member. A tombstone removes the member."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 5)
    instance_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`group.instance.id` of a static member, null for a dynamic one."""
    rack_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`client.rack` of the consumer, null if not set."""
    client_id: String = ""
    """`client.id` of the consumer."""
    client_host: String = ""
    """Address that the member connects from."""
    subscribed_topic_names: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Topics that the member subscribes to by name, sorted."""
    subscribed_topic_regex: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Regular expression that the member subscribes to, null if it has none."""
    rebalance_timeout_ms: Int32 = -1
    """Time in ms that the member may take to revoke partitions."""
    server_assignor: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Server-side assignor that the member prefers, null for no preference."""
    classic_member_metadata: Annotated[
        ClassicMemberMetadata | None, wire_field("struct", nullable="0+", tagged="0+", tag=0)
    ] = field(default_factory=ClassicMemberMetadata)
    """JoinGroup parameters of a member that uses the classic protocol, null for the consumer protocol."""


class ConsumerGroupMetadataKey(Message):
    """Key, type 3, of the group epoch: group id of a consumer group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 3)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""


class ConsumerGroupMetadataValue(Message):
    """Value, type 3: group epoch of a consumer group. A tombstone deletes the group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 3)
    epoch: Int32 = 0
    """Group epoch, raised by each change of members, subscriptions or topics."""
    metadata_hash: Annotated[int, wire_field("int64", tagged="0+", tag=0)] = 0
    """Hash of the subscribed topics, their partitions and racks; if it changes, the group rebalances. 0 in records of
    versions before 4.1 (KIP-1101).
    """


class ConsumerGroupPartitionMetadataKey(Message):
    """Key, type 4: group id of a consumer group. Only written as a tombstone since Apache Kafka 4.1."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 4)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""


class PartitionMetadata(Message):
    """Partition of a subscribed topic with the racks of its replicas, in a value of type 4."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    racks: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Racks of the brokers that have a replica."""


class TopicMetadata(Message):
    """Topic in a value of type 4: one that the group subscribed to at its last assignment."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    topic_name: String = ""
    """Name of the topic with this id."""
    num_partitions: Int32 = 0
    """Partition count of the topic at that time."""
    partition_metadata: Annotated[list[PartitionMetadata], wire_field("[]struct")] = field(default_factory=list)
    """Racks by partition; empty since Apache Kafka 4.0."""


class ConsumerGroupPartitionMetadataValue(Message):
    """Value, type 4: topics of a group. Superseded by `metadata_hash` of type 3 (KIP-1101)."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 4)
    topics: Annotated[list[TopicMetadata], wire_field("[]struct")] = field(default_factory=list)
    """Topics that the group subscribes to."""


class ConsumerGroupRegularExpressionKey(Message):
    """Key, type 16: group id, and a regular expression that members of the group subscribe to."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 16)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""
    regular_expression: Annotated[str, wire_field("string", "0")] = ""
    """Regular expression, in RE2/J syntax."""


class ConsumerGroupRegularExpressionValue(Message):
    """Value, type 16: topics that match the expression. A tombstone follows the last subscriber."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 16)
    topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Names of the topics that match."""
    version: Int64 = 0
    """Metadata offset that the topics were taken from."""
    timestamp: Int64 = 0
    """Time of the evaluation in ms since the epoch."""


class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Key, type 7, of the target assignment of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 7)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class TopicPartition(Message):
    """Topic with partitions of the target assignment of a member."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Value, type 7: partitions that a member is to have. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 7)
    topic_partitions: Annotated[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that the member will have once other members have released them."""


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Key, type 6, of the epoch of a target assignment: group id of a consumer group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 6)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the consumer group."""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """Value, type 6: group epoch of the target assignment, written after its records of type 7."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 6)
    assignment_epoch: Int32 = 0
    """Group epoch that the target assignment was computed for."""
    assignment_timestamp: Annotated[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0
    """Time when the computation ended, in ms since the epoch; 0 in records of versions before 4.3 (KIP-1263)."""
