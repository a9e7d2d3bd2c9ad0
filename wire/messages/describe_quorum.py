"""DescribeQuorum (api 55): state of the metadata quorum.

Made by KIP-595; version 1 brings times of the last fetch (KIP-836), 2 directory ids (KIP-853).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class DescribeQuorumRequestPartitionData(Message):
    partition_index: Int32 = 0


class DescribeQuorumRequestTopicData(Message):
    topic_name: String = ""
    partitions: A[list[DescribeQuorumRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class DescribeQuorumRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(55, "0-2", "0+", "broker controller")
    topics: A[list[DescribeQuorumRequestTopicData], wire_field("[]struct")] = field(default_factory=list)


class ReplicaState(Message):
    replica_id: Int32 = 0
    replica_directory_id: A[bytes, wire_field("uuid", "2+")] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: A[int, wire_field("int64", "1+", ignorable=True)] = -1
    last_caught_up_timestamp: A[int, wire_field("int64", "1+", ignorable=True)] = -1


class DescribeQuorumResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: A[list[ReplicaState], wire_field("[]struct")] = field(default_factory=list)
    observers: A[list[ReplicaState], wire_field("[]struct")] = field(default_factory=list)


class DescribeQuorumResponseTopicData(Message):
    topic_name: String = ""
    partitions: A[list[DescribeQuorumResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class Listener(Message):
    name: A[str, wire_field("string", "2+")] = ""
    host: A[str, wire_field("string", "2+")] = ""
    port: A[int, wire_field("uint16", "2+")] = 0


class Node(Message):
    node_id: A[int, wire_field("int32", "2+")] = 0
    listeners: A[list[Listener], wire_field("[]struct", "2+")] = field(default_factory=list)


class DescribeQuorumResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(55, "0-2", "0+")
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = ""
    topics: A[list[DescribeQuorumResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    nodes: A[list[Node], wire_field("[]struct", "2+")] = field(default_factory=list)
