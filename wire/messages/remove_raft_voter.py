"""RemoveRaftVoter (API 81): remove a controller from the voters of the metadata quorum (KIP-853)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, Uuid, request, response, wire_field


class RemoveRaftVoterRequest(Message):
    """Request to remove a voter from the metadata quorum. Brokers forward it to the quorum leader."""

    SPEC: ClassVar[MessageSpec] = request(81, "0", "0+", "controller broker")
    """Flow: An admin client sends it to any controller or broker. The leader appends a VotersRecord without the voter;
    a leader that removes itself resigns afterwards.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    voter_id: Int32 = 0
    """Node id of the voter. The leader may be removed: it resigns once the change is committed. The last voter may not.
    """
    voter_directory_id: Uuid = ZERO_UUID
    """Id of the metadata log directory of the voter. If no voter has this node id and directory id, the request is
    rejected with VOTER_NOT_FOUND; zero is rejected with INVALID_REQUEST.
    """


class RemoveRaftVoterResponse(Message):
    """Error code of RemoveRaftVoter, sent when the voter set without the voter is committed; 0 on success."""

    SPEC: ClassVar[MessageSpec] = response(81, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the node reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or VOTER_NOT_FOUND (also for the last voter), INVALID_REQUEST, REQUEST_TIMED_OUT (retry: another change is
    open), UNSUPPORTED_VERSION (`kraft.version` 0), NOT_LEADER_OR_FOLLOWER, INCONSISTENT_CLUSTER_ID,
    CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+", ignorable=True)] = ""
    """Text for the error, null if there is none."""
