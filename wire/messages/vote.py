"""Vote (api 52): kRaft: ask for a vote.

Made by KIP-595; version 1 brings voters' keys (KIP-853), 2 asks before it asks (KIP-996).
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
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class VoteRequestPartitionData(Message):
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: A[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    voter_directory_id: A[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: A[bool, wire_field("bool", "2+")] = False


class VoteRequestTopicData(Message):
    topic_name: String = ""
    partitions: A[list[VoteRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class VoteRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(52, "0-2", "0+", "controller")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = None
    voter_id: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    topics: A[list[VoteRequestTopicData], wire_field("[]struct")] = field(default_factory=list)


class VoteResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False


class VoteResponseTopicData(Message):
    topic_name: String = ""
    partitions: A[list[VoteResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "1+")] = 0
    host: A[str, wire_field("string", "1+")] = ""
    port: A[int, wire_field("uint16", "1+")] = 0


class VoteResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(52, "0-2", "0+")
    error_code: Int16 = 0
    topics: A[list[VoteResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
