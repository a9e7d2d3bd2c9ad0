"""AlterPartitionReassignments (api 45): move replicas between brokers.

Made by KIP-455; version 1 may refuse to change the replication factor (KIP-860).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ReassignablePartition(Message):
    partition_index: Int32 = 0
    replicas: A[list[int] | None, wire_field("[]int32", nullable="0+")] = None


class ReassignableTopic(Message):
    name: String = ""
    partitions: A[list[ReassignablePartition], wire_field("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(45, "0-1", "0+", "broker controller")
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: A[bool, wire_field("bool", "1+")] = True
    topics: A[list[ReassignableTopic], wire_field("[]struct")] = field(default_factory=list)


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""


class ReassignableTopicResponse(Message):
    name: String = ""
    partitions: A[list[ReassignablePartitionResponse], wire_field("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(45, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: A[bool, wire_field("bool", "1+", ignorable=True)] = True
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    responses: A[list[ReassignableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
