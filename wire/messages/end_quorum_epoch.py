"""EndQuorumEpoch (API 54): resignation of the leader of the metadata quorum (KIP-595)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ReplicaInfo(Message):
    """Voter that the resigning leader prefers as its successor: node id and directory id."""

    candidate_id: Annotated[int, wire_field("int32", "1+")] = 0
    """Node id of the voter."""
    candidate_directory_id: Annotated[bytes, wire_field("uuid", "1+")] = ZERO_UUID
    """Id of the metadata log directory of the voter."""


class EndQuorumEpochRequestPartitionData(Message):
    """Resigning leader of the metadata quorum, its epoch and its preferred successors."""

    partition_index: Int32 = 0
    """Index of the partition; 0, since the log has one partition."""
    leader_id: Int32 = 0
    """Node id of the leader that resigns. A negative one is rejected with INVALID_REQUEST."""
    leader_epoch: Int32 = 0
    """Epoch that the leader resigns from. A lower one than the receiver knows is rejected with FENCED_LEADER_EPOCH."""
    preferred_successors: Annotated[list[int], wire_field("[]int32", "0", ignorable=True)] = field(default_factory=list)
    """Node ids of the other voters, the one with the longest log first, in version 0."""
    preferred_candidates: Annotated[list[ReplicaInfo], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )
    """Other voters, the one with the longest log first, from version 1 on. The first starts an election at once, the
    others after a growing delay.
    """


class EndQuorumEpochRequestTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in an EndQuorumEpoch request."""

    topic_name: String = ""
    """`__cluster_metadata`. Any other name is rejected with INVALID_REQUEST."""
    partitions: Annotated[list[EndQuorumEpochRequestPartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log, exactly one."""


class LeaderEndpoint(Message):
    """Endpoint of the quorum leader that resigns: listener name, host and port."""

    name: Annotated[str, wire_field("string", "1+")] = ""
    """Listener name."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the endpoint."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of the endpoint."""


class EndQuorumEpochRequest(Message):
    """Announcement of a quorum leader to a voter that it resigns, so that the next election starts early."""

    SPEC: ClassVar[MessageSpec] = request(54, "0-1", "1+", "controller")
    """Version 1 is flexible, replaces successors with candidates and adds the endpoints of the leader (KIP-853).

    Flow: The leader sends it to the voters when it shuts down or resigns. The preferred successor starts an election at
    once, the others after a delay.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    topics: Annotated[list[EndQuorumEpochRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log, exactly one topic."""
    leader_endpoints: Annotated[list[LeaderEndpoint], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )
    """Endpoints of the leader. The list may be empty, and Ottla does not use it."""


class EndQuorumEpochResponsePartitionData(Message):
    """Quorum leader and epoch that the responding voter knows after the request, or an error code."""

    partition_index: Int32 = 0
    """Index of the partition; 0."""
    error_code: Int16 = 0
    """0, or FENCED_LEADER_EPOCH, INVALID_REQUEST."""
    leader_id: Int32 = 0
    """Node id of the leader that the receiver knows, -1 if it knows none."""
    leader_epoch: Int32 = 0
    """Highest epoch that the receiver knows."""


class EndQuorumEpochResponseTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in an EndQuorumEpoch response."""

    topic_name: String = ""
    """`__cluster_metadata`."""
    partitions: Annotated[list[EndQuorumEpochResponsePartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log."""


class NodeEndpoint(Message):
    """Node id and address of the quorum leader that an EndQuorumEpoch response names."""

    node_id: Annotated[int, wire_field("int32", "1+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of that listener."""


class EndQuorumEpochResponse(Message):
    """Acknowledgement of a resignation by a voter."""

    SPEC: ClassVar[MessageSpec] = response(54, "0-1", "1+")
    error_code: Int16 = 0
    """Error of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST or CLUSTER_AUTHORIZATION_FAILED. 0 if the
    partition has its own.
    """
    topics: Annotated[list[EndQuorumEpochResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log with the leader that the receiver knows. Empty with an error of the whole request."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
    """Address of the leader in the response, if the receiver knows it."""
