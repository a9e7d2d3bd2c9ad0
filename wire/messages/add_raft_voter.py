"""AddRaftVoter (API 80): add a controller to the voters of the metadata quorum (KIP-853)."""

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
    """Endpoint of the controller to add as a voter: listener name, host and port."""

    name: String = ""
    """Listener name. The voter needs an endpoint with the name of the first controller listener of the leader."""
    host: String = ""
    """Host name or address of the endpoint."""
    port: Uint16 = 0
    """Port of the endpoint."""


class AddRaftVoterRequest(Message):
    """Request to make a controller that has caught up with the log a voter of the metadata quorum."""

    SPEC: ClassVar[MessageSpec] = request(80, "0-1", "0+", "controller broker")
    """Version 0 is that of KIP-853, version 1 adds `ack_when_committed`.

    Flow: An admin client sends it to any controller or broker, or a controller for itself
    (`controller.quorum.auto.join.enable`). The leader checks that the new voter responds and has caught up, then
    appends a VotersRecord. One change is in progress at a time.
    """
    cluster_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Id of the cluster, null to leave it unchecked. Another one is rejected with INCONSISTENT_CLUSTER_ID."""
    timeout_ms: Int32 = 0
    """Time in ms that the sender waits. The leader ignores it and applies `controller.quorum.request.timeout.ms`."""
    voter_id: Int32 = 0
    """Node id of the new voter. If the id is a voter already, the request is rejected with DUPLICATE_VOTER, even with
    another directory.
    """
    voter_directory_id: Uuid = ZERO_UUID
    """Id of the metadata log directory of the new voter, from its `meta.properties`. A voter is identified by node id
    and directory id together, so that a voter that lost its disk is a new one.
    """
    listeners: Annotated[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints of the new voter, which the voters record keeps for the other nodes."""
    ack_when_committed: Annotated[bool, wire_field("bool", "1+")] = True
    """True to respond when the new voter set is committed, false to respond as soon as the leader has appended it."""


class AddRaftVoterResponse(Message):
    """Error code of AddRaftVoter; 0 if the controller is a voter now."""

    SPEC: ClassVar[MessageSpec] = response(80, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the node reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or DUPLICATE_VOTER, INVALID_REQUEST (no usable endpoint, or no support for the `kraft.version`),
    REQUEST_TIMED_OUT (retry: another change is open, or the node has not caught up), UNSUPPORTED_VERSION
    (`kraft.version` 0), NOT_LEADER_OR_FOLLOWER.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+", ignorable=True)] = ""
    """Text for the error, null if there is none."""
