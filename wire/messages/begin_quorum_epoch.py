"""BeginQuorumEpoch (api 53): kRaft: a new leader announces itself.

Made by KIP-595; version 1 brings voters' keys and endpoints (KIP-853).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class BeginQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = 0
    voter_directory_id: A[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochRequestTopicData(Message):
    topic_name: String = ""
    partitions: A[list[BeginQuorumEpochRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class LeaderEndpoint(Message):
    name: A[str, wire_field("string", "1+")] = ""
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class BeginQuorumEpochRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(53, "0-1", "1+", "controller")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = None
    voter_id: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    topics: A[list[BeginQuorumEpochRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    leader_endpoints: A[list[LeaderEndpoint], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )


class BeginQuorumEpochResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochResponseTopicData(Message):
    topic_name: String = ""
    partitions: A[list[BeginQuorumEpochResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "1+")] = 0
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class BeginQuorumEpochResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(53, "0-1", "1+")
    error_code: Int16 = 0
    topics: A[list[BeginQuorumEpochResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
