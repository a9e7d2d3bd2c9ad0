"""BeginQuorumEpoch (api 53): kRaft: a new leader announces itself.

Made by KIP-595; version 1 brings voters' keys and endpoints (KIP-853).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, String, request, response, w


class BeginQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = 0
    voter_directory_id: A[bytes, w("uuid", "1+", ignorable=True)] = ZERO_UUID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochRequestTopicData(Message):
    topic_name: String = ""
    partitions: A[list[BeginQuorumEpochRequestPartitionData], w("[]struct")] = field(default_factory=list)


class LeaderEndpoint(Message):
    name: A[str, w("string", "1+")] = ""
    host: A[str, w("string", "1+")] = ""
    port: A[int, w("uint16", "1+")] = 0


class BeginQuorumEpochRequest(Message):
    SPEC: ClassVar[Spec] = request(53, "0-1", "1+", "controller")
    cluster_id: A[str | None, w("string", nullable="0+")] = None
    voter_id: A[int, w("int32", "1+", ignorable=True)] = -1
    topics: A[list[BeginQuorumEpochRequestTopicData], w("[]struct")] = field(default_factory=list)
    leader_endpoints: A[list[LeaderEndpoint], w("[]struct", "1+", ignorable=True)] = field(default_factory=list)


class BeginQuorumEpochResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochResponseTopicData(Message):
    topic_name: String = ""
    partitions: A[list[BeginQuorumEpochResponsePartitionData], w("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, w("int32", "1+")] = 0
    host: A[str, w("string", "1+")] = ""
    port: A[int, w("uint16", "1+")] = 0


class BeginQuorumEpochResponse(Message):
    SPEC: ClassVar[Spec] = response(53, "0-1", "1+")
    error_code: Int16 = 0
    topics: A[list[BeginQuorumEpochResponseTopicData], w("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], w("[]struct", "1+", tagged="1+", tag=0)] = field(default_factory=list)
