"""StreamsGroupDescribe (api 89): state and members of streams groups.

Made by KIP-1071.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
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


class StreamsGroupDescribeRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(89, "0", "0+", "broker")
    group_ids: A[list[str], wire_field("[]string")] = field(default_factory=list)
    include_authorized_operations: Bool = False


class KeyValue(Message):
    key: String = ""
    value: String = ""


class TopicInfo(Message):
    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: A[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)


class Subtopology(Message):
    subtopology_id: String = ""
    source_topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    repartition_sink_topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    state_changelog_topics: A[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    repartition_source_topics: A[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)


class Topology(Message):
    epoch: Int32 = 0
    subtopologies: A[list[Subtopology] | None, wire_field("[]struct", nullable="0+")] = None


class Endpoint(Message):
    host: String = ""
    port: Uint16 = 0


class TaskOffset(Message):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class TaskIds(Message):
    subtopology_id: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class Assignment(Message):
    active_tasks: A[list[TaskIds], wire_field("[]struct")] = field(default_factory=list)
    standby_tasks: A[list[TaskIds], wire_field("[]struct")] = field(default_factory=list)
    warmup_tasks: A[list[TaskIds], wire_field("[]struct")] = field(default_factory=list)


class Member(Message):
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: A[str | None, wire_field("string", nullable="0+")] = None
    rack_id: A[str | None, wire_field("string", nullable="0+")] = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: A[Endpoint | None, wire_field("struct", nullable="0+")] = None
    client_tags: A[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)
    task_offsets: A[list[TaskOffset], wire_field("[]struct")] = field(default_factory=list)
    task_end_offsets: A[list[TaskOffset], wire_field("[]struct")] = field(default_factory=list)
    assignment: A[Assignment, wire_field("struct")] = field(default_factory=Assignment)
    target_assignment: A[Assignment, wire_field("struct")] = field(default_factory=Assignment)
    is_classic: Bool = False


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: A[Topology | None, wire_field("struct", nullable="0+")] = None
    members: A[list[Member], wire_field("[]struct")] = field(default_factory=list)
    authorized_operations: Int32 = -2147483648


class StreamsGroupDescribeResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(89, "0", "0+")
    throttle_time_ms: Int32 = 0
    groups: A[list[DescribedGroup], wire_field("[]struct")] = field(default_factory=list)
