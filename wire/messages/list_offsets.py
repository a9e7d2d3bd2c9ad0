"""ListOffsets (api 2): find offsets by time: earliest, latest or a timestamp.

Version 2 brings isolation (KIP-98), 4 leader epochs (KIP-320), 7 the largest timestamp (KIP-734), 8 to 11 what tiered
storage asks for (KIP-405, KIP-1005, KIP-1075, KIP-1023).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class ListOffsetsPartition(Message):
    partition_index: Int32 = 0
    current_leader_epoch: A[int, wire_field("int32", "4+", ignorable=True)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Message):
    name: String = ""
    partitions: A[list[ListOffsetsPartition], wire_field("[]struct")] = field(default_factory=list)


class ListOffsetsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(2, "1-11", "6+", "broker")
    replica_id: Int32 = 0
    isolation_level: A[int, wire_field("int8", "2+")] = 0
    topics: A[list[ListOffsetsTopic], wire_field("[]struct")] = field(default_factory=list)
    timeout_ms: A[int, wire_field("int32", "10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: A[int, wire_field("int64", "1+")] = -1
    offset: A[int, wire_field("int64", "1+")] = -1
    leader_epoch: A[int, wire_field("int32", "4+")] = -1


class ListOffsetsTopicResponse(Message):
    name: String = ""
    partitions: A[list[ListOffsetsPartitionResponse], wire_field("[]struct")] = field(default_factory=list)


class ListOffsetsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(2, "1-11", "6+")
    throttle_time_ms: A[int, wire_field("int32", "2+", ignorable=True)] = 0
    topics: A[list[ListOffsetsTopicResponse], wire_field("[]struct")] = field(default_factory=list)
