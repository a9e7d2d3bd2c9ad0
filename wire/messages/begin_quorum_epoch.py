"""BeginQuorumEpoch (API 53): announce a new leader of the metadata quorum (KIP-595)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class BeginQuorumEpochRequestPartitionData(Message):
    """New leader of the partition of `__cluster_metadata`, with its leader epoch."""

    partition_index: Int32 = 0
    """Index of the partition; 0, since the log has one partition."""
    voter_directory_id: Annotated[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    """Directory id of the receiver, zero to leave it unchecked. If it does not match, the receiver follows the leader
    and answers INVALID_VOTER_KEY.
    """
    leader_id: Int32 = 0
    """Node id of the new leader. A negative one is rejected with INVALID_REQUEST."""
    leader_epoch: Int32 = 0
    """Epoch of the new leader. A lower one than the receiver knows is rejected with FENCED_LEADER_EPOCH."""


class BeginQuorumEpochRequestTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a BeginQuorumEpoch request."""

    topic_name: String = ""
    """`__cluster_metadata`. Any other name is rejected with INVALID_REQUEST."""
    partitions: Annotated[list[BeginQuorumEpochRequestPartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log, exactly one."""


class LeaderEndpoint(Message):
    """Endpoint of the new leader of the metadata quorum: listener name, host and port."""

    name: Annotated[str, wire_field("string", "1+")] = ""
    """Listener name. The receiver uses the endpoint with the name of its own controller listener."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the endpoint."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of the endpoint."""


class BeginQuorumEpochRequest(Message):
    """Announcement of a quorum leader to another voter that does not fetch from it, or not any more."""

    SPEC: ClassVar[MessageSpec] = request(53, "0-1", "1+", "controller")
    """Version 1 is flexible and adds the voter key of the receiver and the endpoints of the leader (KIP-853).

    Flow: The new leader sends it to all voters after its election, and again to those that do not fetch. A voter
    becomes a follower of this leader.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    voter_id: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Node id of the receiver, -1 to leave it unchecked. If it does not match, the receiver answers INVALID_VOTER_KEY.
    """
    topics: Annotated[list[BeginQuorumEpochRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log, exactly one topic."""
    leader_endpoints: Annotated[list[LeaderEndpoint], wire_field("[]struct", "1+", ignorable=True)] = field(
        default_factory=list
    )
    """Endpoints of the leader, to which followers send Fetch. At most 1,000 are accepted."""


class BeginQuorumEpochResponsePartitionData(Message):
    """Quorum leader and epoch that the responding voter knows after the request, or an error code."""

    partition_index: Int32 = 0
    """Index of the partition; 0."""
    error_code: Int16 = 0
    """0, or FENCED_LEADER_EPOCH (the sender is not leader any more), INVALID_VOTER_KEY, INVALID_REQUEST."""
    leader_id: Int32 = 0
    """Node id of the leader that the receiver knows, -1 if it knows none."""
    leader_epoch: Int32 = 0
    """Highest epoch that the receiver knows. If it is above that of the sender, the sender resigns."""


class BeginQuorumEpochResponseTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a BeginQuorumEpoch response."""

    topic_name: String = ""
    """`__cluster_metadata`."""
    partitions: Annotated[list[BeginQuorumEpochResponsePartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log."""


class NodeEndpoint(Message):
    """Node id and address of the quorum leader that a BeginQuorumEpoch response names."""

    node_id: Annotated[int, wire_field("int32", "1+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of that listener."""


class BeginQuorumEpochResponse(Message):
    """Acknowledgement of a new quorum leader by a voter."""

    SPEC: ClassVar[MessageSpec] = response(53, "0-1", "1+")
    error_code: Int16 = 0
    """Error of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST or CLUSTER_AUTHORIZATION_FAILED. 0 if the
    partition has its own.
    """
    topics: Annotated[list[BeginQuorumEpochResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log with the leader that the receiver knows. Empty with an error of the whole request."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
    """Address of the leader in the response, if the receiver knows it."""
