"""ListPartitionReassignments (api 46): which moves are under way.

Made by KIP-455.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ListPartitionReassignmentsTopics(Message):
    name: String = ""
    partition_indexes: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ListPartitionReassignmentsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(46, "0", "0+", "broker controller")
    timeout_ms: Int32 = 60000
    topics: A[list[ListPartitionReassignmentsTopics] | None, wire_field("[]struct", nullable="0+")] = None


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = 0
    replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    adding_replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    removing_replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class OngoingTopicReassignment(Message):
    name: String = ""
    partitions: A[list[OngoingPartitionReassignment], wire_field("[]struct")] = field(default_factory=list)


class ListPartitionReassignmentsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(46, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    topics: A[list[OngoingTopicReassignment], wire_field("[]struct")] = field(default_factory=list)
