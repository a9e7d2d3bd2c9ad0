"""DescribeQuorum (API 55): state of the metadata quorum (KIP-595)."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Partition of `__cluster_metadata` to describe, index 0."""

    partition_index: Int32 = 0
    """Index of the partition; 0."""


class DescribeQuorumRequestTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a DescribeQuorum request."""

    topic_name: String = ""
    """`__cluster_metadata`. Any other name yields UNKNOWN_TOPIC_OR_PARTITION."""
    partitions: Annotated[list[DescribeQuorumRequestPartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log, exactly one."""


class DescribeQuorumRequest(Message):
    """Request for leader, voters and observers of the metadata quorum. Brokers forward it to the leader."""

    SPEC: ClassVar[MessageSpec] = request(55, "0-2", "0+", "broker controller")
    """Version 1 adds times to the response (KIP-836), 2 directory ids, endpoints and error messages (KIP-853).

    Flow: A tool sends it to any broker, which forwards it to the leader of the metadata quorum. Only the leader knows
    the log end offsets of the followers.
    """
    topics: Annotated[list[DescribeQuorumRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log, exactly one topic."""


class ReplicaState(Message):
    """Voter or observer of the metadata quorum, with its progress in the view of the leader."""

    replica_id: Int32 = 0
    """Node id of the replica."""
    replica_directory_id: Annotated[bytes, wire_field("uuid", "2+")] = ZERO_UUID
    """Id of the metadata log directory of the replica; zero if unknown."""
    log_end_offset: Int64 = 0
    """End of the log of the replica at its last Fetch; -1 if unknown."""
    last_fetch_timestamp: Annotated[int, wire_field("int64", "1+", ignorable=True)] = -1
    """Time of the last Fetch of the replica, in ms since the epoch by the clock of the leader; -1 if unknown. In Ottla
    the present time for the leader itself.
    """
    last_caught_up_timestamp: Annotated[int, wire_field("int64", "1+", ignorable=True)] = -1
    """Last time when the replica had all records of the leader, in ms since the epoch; -1 if unknown, and the present
    time for the leader itself.
    """


class DescribeQuorumResponsePartitionData(Message):
    """Leader, high watermark, voters and observers of the metadata quorum, or an error code."""

    partition_index: Int32 = 0
    """Index of the partition; 0."""
    error_code: Int16 = 0
    """0, or NOT_LEADER_OR_FOLLOWER (another controller leads), UNKNOWN_TOPIC_OR_PARTITION."""
    error_message: Annotated[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = ""
    """Text for the error, null if there is none."""
    leader_id: Int32 = 0
    """Node id of the leader of the quorum, the active controller."""
    leader_epoch: Int32 = 0
    """Epoch in which this node leads, raised by each election."""
    high_watermark: Int64 = 0
    """Offset after the last record that a majority of the voters has; -1 until a new leader has committed a record."""
    current_voters: Annotated[list[ReplicaState], wire_field("[]struct")] = field(default_factory=list)
    """Voters of the quorum, the leader among them."""
    observers: Annotated[list[ReplicaState], wire_field("[]struct")] = field(default_factory=list)
    """Nodes that fetch the log without a vote: brokers, and controllers that are no voters. One that has not fetched
    for five minutes is left out.
    """


class DescribeQuorumResponseTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a DescribeQuorum response."""

    topic_name: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[DescribeQuorumResponsePartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partition of the metadata log."""


class Listener(Message):
    """Endpoint of a voter of the metadata quorum: listener name, host and port."""

    name: Annotated[str, wire_field("string", "2+")] = ""
    """Listener name."""
    host: Annotated[str, wire_field("string", "2+")] = ""
    """Host name or address of the endpoint."""
    port: Annotated[int, wire_field("uint16", "2+")] = 0
    """Port of the endpoint."""


class Node(Message):
    """Voter of the metadata quorum with its endpoints, in a DescribeQuorum response."""

    node_id: Annotated[int, wire_field("int32", "2+")] = 0
    """Id of the voter."""
    listeners: Annotated[list[Listener], wire_field("[]struct", "2+")] = field(default_factory=list)
    """Endpoints of the voter, as known to the leader."""


class DescribeQuorumResponse(Message):
    """State of the metadata quorum and endpoints of its voters, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(55, "0-2", "0+")
    error_code: Int16 = 0
    """Error of the whole request: CLUSTER_AUTHORIZATION_FAILED. 0 if the partition has its own."""
    error_message: Annotated[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = ""
    """Text for the error of the whole request, null if there is none."""
    topics: Annotated[list[DescribeQuorumResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log with the state of the quorum."""
    nodes: Annotated[list[Node], wire_field("[]struct", "2+")] = field(default_factory=list)
    """Voters with their endpoints."""
