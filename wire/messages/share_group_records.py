"""Records of share groups in `__consumer_offsets` (KIP-932): types 10 to 15, each a key and a value."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int32, Int64, Message, MessageSpec, String, Uuid, data, wire_field


class ShareGroupCurrentMemberAssignmentKey(Message):
    """Key, type 14, of the current assignment of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 14)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class TopicPartitions(Message):
    """Topic id with partitions of the current assignment of a member."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class ShareGroupCurrentMemberAssignmentValue(Message):
    """Value, type 14: partitions and epoch of a member now. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 14)
    member_epoch: Int32 = 0
    """Member epoch that the next heartbeat must have."""
    previous_member_epoch: Int32 = 0
    """Member epoch before, also accepted from the member, in case the response with the new one was lost. 0 after
    joining.
    """
    state: Int8 = 0
    """State of the member: always 0, stable, as a member of a share group has its target assignment at once."""
    assigned_partitions: Annotated[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that the member may acquire records from."""


class ShareGroupMemberMetadataKey(Message):
    """Key, type 10, of a member of a share group: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 10)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class ShareGroupMemberMetadataValue(Message):
    """Value, type 10: client and subscription of a member. A tombstone removes the member."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 10)
    rack_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`client.rack` of the consumer, null if not set."""
    client_id: String = ""
    """`client.id` of the consumer."""
    client_host: String = ""
    """Address that the member connects from."""
    subscribed_topic_names: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Topics that the member subscribes to, sorted."""


class ShareGroupMetadataKey(Message):
    """Key, type 11, of the group epoch: group id of a share group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 11)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""


class ShareGroupMetadataValue(Message):
    """Value, type 11: group epoch of a share group. A tombstone deletes the group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 11)
    epoch: Int32 = 0
    """Group epoch, raised by each change of members, subscriptions or topics."""
    metadata_hash: Int64 = 0
    """Hash of the subscribed topics, their partitions and racks; if it changes, the group computes a new assignment."""


class ShareGroupStatePartitionMetadataKey(Message):
    """Key, type 15, of the partitions with delivery state: group id of a share group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 15)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""


class TopicPartitionsInfo(Message):
    """Topic with partitions that have delivery state, or are about to get it, in a value of type 15."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    topic_name: String = ""
    """Name of the topic at the time of the record."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class TopicInfo(Message):
    """Topic of which the delivery state is being deleted, in a value of type 15: id and name."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    topic_name: String = ""
    """Name of the topic at the time of the record."""


class ShareGroupStatePartitionMetadataValue(Message):
    """Value, type 15: partitions with state at the share coordinator. A tombstone removes all."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 15)
    initializing_topics: Annotated[list[TopicPartitionsInfo], wire_field("[]struct")] = field(default_factory=list)
    """Partitions for which the share coordinator was requested to create state; not assigned to members yet. After 30 s
    without success it is requested again.
    """
    initialized_topics: Annotated[list[TopicPartitionsInfo], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with state; only these are assigned to members."""
    deleting_topics: Annotated[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    """Topics with state that the share coordinator was requested to delete, after DeleteShareGroupOffsets or before the
    group is deleted.
    """


class ShareGroupTargetAssignmentMemberKey(Message):
    """Key, type 13, of the target assignment of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 13)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class TopicPartition(Message):
    """Topic id with partitions of the target assignment of a member."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class ShareGroupTargetAssignmentMemberValue(Message):
    """Value, type 13: partitions that a member is to have. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 13)
    topic_partitions: Annotated[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that the member will have from its next heartbeat on. A partition may be in several target
    assignments.
    """


class ShareGroupTargetAssignmentMetadataKey(Message):
    """Key, type 12, of the epoch of a target assignment: group id of a share group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 12)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""


class ShareGroupTargetAssignmentMetadataValue(Message):
    """Value, type 12: group epoch of the target assignment, written after its records of type 13."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 12)
    assignment_epoch: Int32 = 0
    """Group epoch that the target assignment was computed for."""
    assignment_timestamp: Annotated[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0
    """Time when the computation ended, in ms since the epoch; 0 in records of versions before 4.3 (KIP-1263)."""
