"""StreamsGroupHeartbeat (api 88): membership of a streams group (KIP-1071)."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uint16,
    request,
    response,
    wire_field,
)


class KeyValue(Message):
    key: String = ""
    value: String = ""


class TopicInfo(Message):
    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: A[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)


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


class Topology(Message):
    epoch: Int32 = 0
    subtopologies: A[list[Subtopology], wire_field("[]struct")] = field(default_factory=list)


class StreamsGroupHeartbeatRequestTaskIds(Message):
    subtopology_id: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class StreamsGroupHeartbeatRequestEndpoint(Message):
    host: String = ""
    port: Uint16 = 0


class TaskOffset(Message):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(88, "0", "0+", "broker")
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: A[str | None, wire_field("string", nullable="0+")] = None
    rack_id: A[str | None, wire_field("string", nullable="0+")] = None
    rebalance_timeout_ms: Int32 = -1
    topology: A[Topology | None, wire_field("struct", nullable="0+")] = None
    active_tasks: A[list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    standby_tasks: A[list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    warmup_tasks: A[list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    process_id: A[str | None, wire_field("string", nullable="0+")] = None
    user_endpoint: A[StreamsGroupHeartbeatRequestEndpoint | None, wire_field("struct", nullable="0+")] = None
    client_tags: A[list[KeyValue] | None, wire_field("[]struct", nullable="0+")] = None
    task_offsets: A[list[TaskOffset] | None, wire_field("[]struct", nullable="0+")] = None
    task_end_offsets: A[list[TaskOffset] | None, wire_field("[]struct", nullable="0+")] = None
    shutdown_application: Bool = False


class Status(Message):
    status_code: Int8 = 0
    status_detail: String = ""


class StreamsGroupHeartbeatResponseTaskIds(Message):
    subtopology_id: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class StreamsGroupHeartbeatResponseEndpoint(Message):
    host: String = ""
    port: Uint16 = 0


class TopicPartition(Message):
    topic: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class EndpointToPartitions(Message):
    user_endpoint: A[StreamsGroupHeartbeatResponseEndpoint, wire_field("struct")] = field(
        default_factory=StreamsGroupHeartbeatResponseEndpoint
    )
    active_partitions: A[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)
    standby_partitions: A[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)


class StreamsGroupHeartbeatResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(88, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: A[list[Status] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)
    active_tasks: A[list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    standby_tasks: A[list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    warmup_tasks: A[list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")] = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: A[list[EndpointToPartitions] | None, wire_field("[]struct", nullable="0+")] = None
