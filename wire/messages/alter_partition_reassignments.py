"""AlterPartitionReassignments (api 45): move replicas between brokers.

Made by KIP-455; version 1 may refuse to change the replication factor (KIP-860).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class ReassignablePartition(Message):
    partition_index: Int32 = 0
    replicas: A[list[int] | None, w("[]int32", nullable="0+")] = None


class ReassignableTopic(Message):
    name: String = ""
    partitions: A[list[ReassignablePartition], w("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsRequest(Message):
    SPEC: ClassVar[Spec] = request(45, "0-1", "0+", "broker controller")
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: A[bool, w("bool", "1+")] = True
    topics: A[list[ReassignableTopic], w("[]struct")] = field(default_factory=list)


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""


class ReassignableTopicResponse(Message):
    name: String = ""
    partitions: A[list[ReassignablePartitionResponse], w("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsResponse(Message):
    SPEC: ClassVar[Spec] = response(45, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: A[bool, w("bool", "1+", ignorable=True)] = True
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    responses: A[list[ReassignableTopicResponse], w("[]struct")] = field(default_factory=list)
