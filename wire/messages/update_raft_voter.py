"""UpdateRaftVoter (API 82): report endpoints and `kraft.version` levels of a voter to the leader (KIP-853)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    Uint16,
    Uuid,
    request,
    response,
    wire_field,
)


class Listener(Message):
    """Endpoint of the voter that sends the request: listener name, host and port."""

    name: String = ""
    """Listener name. The voter needs an endpoint with the name of the first controller listener of the leader."""
    host: String = ""
    """Host name or address of the endpoint."""
    port: Uint16 = 0
    """Port of the endpoint."""


class KRaftVersionFeature(Message):
    """Range of levels of `kraft.version` that the sending voter supports."""

    min_supported_version: Int16 = 0
    """Lowest supported level. Above the level of the cluster, it is rejected with INVALID_REQUEST."""
    max_supported_version: Int16 = 0
    """Highest supported level. Below the level of the cluster, it is rejected with INVALID_REQUEST."""


class UpdateRaftVoterRequest(Message):
    """Report of a voter to the quorum leader that its endpoints or supported levels have changed."""

    SPEC: ClassVar[MessageSpec] = request(82, "0", "0+", "controller")
    """Flow: A voter sends it to the leader of the metadata quorum after its start, if its endpoints or its supported
    `kraft.version` differ from those in the voters record.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    current_leader_epoch: Int32 = 0
    """Leader epoch that the voter knows. An older one is rejected with FENCED_LEADER_EPOCH, a newer one with
    UNKNOWN_LEADER_EPOCH.
    """
    voter_id: Int32 = 0
    """Node id of the voter. If it is no voter, the request is rejected with VOTER_NOT_FOUND."""
    voter_directory_id: Uuid = ZERO_UUID
    """Id of the metadata log directory of the voter. From `kraft.version` 1 on, another one than in the voters record
    is rejected with VOTER_NOT_FOUND.
    """
    listeners: Annotated[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints of the voter, at most 1,000. From `kraft.version` 1 on the leader writes them into a voters record;
    before that it keeps them for the upgrade.
    """
    k_raft_version_feature: Annotated[KRaftVersionFeature, wire_field("struct")] = field(
        default_factory=KRaftVersionFeature
    )
    """Levels of `kraft.version` that the voter supports. An upgrade requires that all voters support the new level."""


class CurrentLeader(Message):
    """Quorum leader that the responding node knows: node id, epoch and address."""

    leader_id: Int32 = -1
    """Node id of the leader, -1 if it is unknown."""
    leader_epoch: Int32 = -1
    """Highest epoch that the receiver knows; -1 by default."""
    host: String = ""
    """Host name or address of the leader on the listener that the request came in on; empty if unknown."""
    port: Int32 = 0
    """Port of that listener; 0 if unknown."""


class UpdateRaftVoterResponse(Message):
    """Error code of UpdateRaftVoter, with the current leader; 0 if the voter was updated."""

    SPEC: ClassVar[MessageSpec] = response(82, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the node reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or INVALID_REQUEST, VOTER_NOT_FOUND, REQUEST_TIMED_OUT (retry: another change is open),
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INCONSISTENT_CLUSTER_ID,
    CLUSTER_AUTHORIZATION_FAILED.
    """
    current_leader: Annotated[CurrentLeader, wire_field("struct", tagged="0+", tag=0)] = field(
        default_factory=CurrentLeader
    )
    """Leader that the receiver knows, also with an error."""
