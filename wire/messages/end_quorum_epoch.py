"""EndQuorumEpoch (api 54): kRaft: a leader resigns.

Made by KIP-595; version 1 brings candidates' keys and endpoints (KIP-853).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ReplicaInfo(Message):
    candidate_id: A[int, wire_field("int32", "1+")] = 0
    candidate_directory_id: A[bytes, wire_field("uuid", "1+")] = ZERO_UUID


class EndQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: A[list[int], wire_field("[]int32", "0", ignorable=True)] = field(default_factory=list)
    preferred_candidates: A[list[ReplicaInfo], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )


class EndQuorumEpochRequestTopicData(Message):
    topic_name: String = ""
    partitions: A[list[EndQuorumEpochRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class LeaderEndpoint(Message):
    name: A[str, wire_field("string", "1+")] = ""
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class EndQuorumEpochRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(54, "0-1", "1+", "controller")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = None
    topics: A[list[EndQuorumEpochRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    leader_endpoints: A[list[LeaderEndpoint], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )


class EndQuorumEpochResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class EndQuorumEpochResponseTopicData(Message):
    topic_name: String = ""
    partitions: A[list[EndQuorumEpochResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "1+")] = 0
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class EndQuorumEpochResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(54, "0-1", "1+")
    error_code: Int16 = 0
    topics: A[list[EndQuorumEpochResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
