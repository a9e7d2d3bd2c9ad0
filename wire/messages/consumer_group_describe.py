"""ConsumerGroupDescribe (api 69): state and members of new-protocol groups.

Made by KIP-848.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class ConsumerGroupDescribeRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(69, "0-1", "0+", "broker")
    group_ids: A[list[str], wire_field("[]string")] = field(default_factory=list)
    include_authorized_operations: Bool = False


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class Assignment(Message):
    topic_partitions: A[list[TopicPartitions], wire_field("[]struct")] = field(default_factory=list)


class Member(Message):
    member_id: String = ""
    instance_id: A[str | None, wire_field("string", nullable="0+")] = None
    rack_id: A[str | None, wire_field("string", nullable="0+")] = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: A[list[str], wire_field("[]string")] = field(default_factory=list)
    subscribed_topic_regex: A[str | None, wire_field("string", nullable="0+")] = None
    assignment: A[Assignment, wire_field("struct")] = field(default_factory=Assignment)
    target_assignment: A[Assignment, wire_field("struct")] = field(default_factory=Assignment)
    member_type: A[int, wire_field("int8", "1+", ignorable=True)] = -1


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: A[list[Member], wire_field("[]struct")] = field(default_factory=list)
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(69, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    groups: A[list[DescribedGroup], wire_field("[]struct")] = field(default_factory=list)
