"""`__consumer_offsets`, record types 17 and 19 to 23: streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Int64, Message, MessageSpec, String, Uint16, data, wire_field


class StreamsGroupCurrentMemberAssignmentKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 22)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Message):
    subtopology_id: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    assignment_epochs: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = field(
        default_factory=list
    )


class StreamsGroupCurrentMemberAssignmentValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 22)
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: A[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    standby_tasks: A[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    warmup_tasks: A[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    active_tasks_pending_revocation: A[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)
    standby_tasks_pending_revocation: A[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)
    warmup_tasks_pending_revocation: A[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)


class StreamsGroupMemberMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 19)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class Endpoint(Message):
    host: String = ""
    port: Uint16 = 0


class KeyValue(Message):
    key: String = ""
    value: String = ""


class StreamsGroupMemberMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 19)
    instance_id: A[str | None, wire_field("string", nullable="0+")] = ""
    rack_id: A[str | None, wire_field("string", nullable="0+")] = ""
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: A[Endpoint | None, wire_field("struct", nullable="0+")] = None
    client_tags: A[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)


class StreamsGroupMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 17)
    group_id: A[str, wire_field("string", "0")] = ""


class LastAssignmentConfig(Message):
    key: String = ""
    value: String = ""


class StreamsGroupMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 17)
    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: A[int, wire_field("int32", tagged="0+", tag=0)] = -1
    last_assignment_configs: A[
        list[LastAssignmentConfig] | None, wire_field("[]struct", nullable="0+", tagged="0+", tag=1)
    ] = field(default_factory=list)


class StreamsGroupTargetAssignmentMemberKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 21)
    group_id: A[str, wire_field("string", "0")] = ""
    member_id: A[str, wire_field("string", "0")] = ""


class StreamsGroupTargetAssignmentMemberValueTaskIds(Message):
    subtopology_id: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class StreamsGroupTargetAssignmentMemberValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 21)
    active_tasks: A[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    standby_tasks: A[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    warmup_tasks: A[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )


class StreamsGroupTargetAssignmentMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 20)
    group_id: A[str, wire_field("string", "0")] = ""


class StreamsGroupTargetAssignmentMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 20)
    assignment_epoch: Int32 = 0
    assignment_timestamp: A[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0


class StreamsGroupTopologyKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 23)
    group_id: A[str, wire_field("string", "0")] = ""


class TopicConfig(Message):
    key: String = ""
    value: String = ""


class TopicInfo(Message):
    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: A[list[TopicConfig], wire_field("[]struct")] = field(default_factory=list)


class CopartitionGroup(Message):
    source_topics: A[list[int], wire_field("[]int16")] = field(default_factory=list)
    source_topic_regex: A[list[int], wire_field("[]int16")] = field(default_factory=list)
    repartition_source_topics: A[list[int], wire_field("[]int16")] = field(default_factory=list)


class Subtopology(Message):
    subtopology_id: String = ""
    source_topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    source_topic_regex: A[list[str], wire_field("[]string")] = field(default_factory=list)
    state_changelog_topics: A[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    repartition_sink_topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    repartition_source_topics: A[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    copartition_groups: A[list[CopartitionGroup], wire_field("[]struct")] = field(default_factory=list)


class StreamsGroupTopologyValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 23)
    epoch: Int32 = 0
    subtopologies: A[list[Subtopology], wire_field("[]struct")] = field(default_factory=list)
