"""Vote (API 52): request votes to become leader of the metadata quorum (KIP-595)."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Candidate in an election or pre-vote of a quorum leader: id, epoch and end of its log."""

    partition_index: Int32 = 0
    """Index of the partition; 0, since the log has one partition."""
    replica_epoch: Int32 = 0
    """Epoch to lead in; of a pre-vote the current epoch of the sender. A lower one than the receiver knows is rejected
    with FENCED_LEADER_EPOCH, a higher one becomes the epoch of the receiver.
    """
    replica_id: Int32 = 0
    """Node id of the candidate. A negative one is rejected with INVALID_REQUEST."""
    replica_directory_id: Annotated[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    """Directory id of the candidate, zero if unknown."""
    voter_directory_id: Annotated[bytes, wire_field("uuid", "1+", ignorable=True)] = ZERO_UUID
    """Directory id of the receiver, zero to leave it unchecked. If it does not match, the receiver answers
    INVALID_VOTER_KEY.
    """
    last_offset_epoch: Int32 = 0
    """Epoch of the last record in the log of the candidate. It must be below `replica_epoch` (of a pre-vote it may be
    equal), else INVALID_REQUEST.
    """
    last_offset: Int64 = 0
    """Offset after the last record in the log of the candidate. A vote is granted only if this log is not behind that
    of the receiver: first the epochs count, then the offsets.
    """
    pre_vote: Annotated[bool, wire_field("bool", "2+")] = False
    """True for a pre-vote: the receiver states how it would vote and stores no vote. The candidate raises its epoch
    only after a majority agrees, so that a node without contact to the leader does not disturb the quorum (KIP-996).
    """


class VoteRequestTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a Vote request."""

    topic_name: String = ""
    """`__cluster_metadata`. Any other name is rejected with INVALID_REQUEST."""
    partitions: Annotated[list[VoteRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partition of the metadata log, exactly one."""


class VoteRequest(Message):
    """Request to a voter for its vote in the election of the quorum leader, or for a pre-vote."""

    SPEC: ClassVar[MessageSpec] = request(52, "0-2", "0+", "controller")
    """Version 1 adds voter keys (KIP-853), version 2 the pre-vote (KIP-996). All versions are flexible.

    Flow: A candidate sends it to all voters when the fetch timeout has passed without a response of a leader. A voter
    grants at most one vote in an epoch, and only to a candidate with a log that is at least as long. In version 2, a
    pre-vote finds out first if an election could succeed (KIP-996).
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    voter_id: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Node id of the receiver, -1 to leave it unchecked. If it does not match, the receiver answers INVALID_VOTER_KEY.
    """
    topics: Annotated[list[VoteRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log, exactly one topic."""


class VoteResponsePartitionData(Message):
    """Vote of the responding voter, granted or not, with the leader and epoch that it knows."""

    partition_index: Int32 = 0
    """Index of the partition; 0."""
    error_code: Int16 = 0
    """0, or FENCED_LEADER_EPOCH, INVALID_VOTER_KEY, INVALID_REQUEST. With an error the response counts neither as a
    granted nor as a refused vote.
    """
    leader_id: Int32 = 0
    """Node id of the leader that the receiver knows, -1 if it knows none."""
    leader_epoch: Int32 = 0
    """Highest epoch that the receiver knows. If it is above that of the sender, the sender gives its candidacy up."""
    vote_granted: Bool = False
    """True if the vote is granted. In an epoch a voter grants its vote to one candidate only, and stores that before it
    responds; pre-votes are not stored.
    """


class VoteResponseTopicData(Message):
    """Topic `__cluster_metadata` with its only partition, in a Vote response."""

    topic_name: String = ""
    """`__cluster_metadata`."""
    partitions: Annotated[list[VoteResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partition of the metadata log."""


class NodeEndpoint(Message):
    """Node id and address of the quorum leader that a Vote response names."""

    node_id: Annotated[int, wire_field("int32", "1+")] = 0
    """Node id of the leader."""
    host: Annotated[str, wire_field("string", "1+")] = ""
    """Host name or address of the listener that the request came in on."""
    port: Annotated[int, wire_field("uint16", "1+")] = 0
    """Port of that listener."""


class VoteResponse(Message):
    """Vote or pre-vote of a voter for the sender, granted or refused."""

    SPEC: ClassVar[MessageSpec] = response(52, "0-2", "0+")
    error_code: Int16 = 0
    """Error of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST or CLUSTER_AUTHORIZATION_FAILED. 0 if the
    partition has its own.
    """
    topics: Annotated[list[VoteResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Metadata log with the vote. Empty with an error of the whole request."""
    node_endpoints: Annotated[list[NodeEndpoint], wire_field("[]struct", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
    """Address of the leader in the response, if the receiver knows it."""
