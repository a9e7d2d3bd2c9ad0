"""ElectLeaders (api 43): ask for preferred or unclean leader elections.

Made by KIP-183; version 1 brings unclean elections (KIP-460).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class TopicPartitions(Message):
    topic: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ElectLeadersRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(43, "0-2", "2+", "broker controller")
    election_type: A[int, wire_field("int8", "1+")] = 0
    topic_partitions: A[list[TopicPartitions] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    timeout_ms: Int32 = 60000


class PartitionResult(Message):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""


class ReplicaElectionResult(Message):
    topic: String = ""
    partition_result: A[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)


class ElectLeadersResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(43, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    error_code: A[int, wire_field("int16", "1+")] = 0
    replica_election_results: A[list[ReplicaElectionResult], wire_field("[]struct")] = field(default_factory=list)
