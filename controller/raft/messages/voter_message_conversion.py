"""Conversion of FetchSnapshot, voter change and ApiVersions messages between the state machine's values and Kafka's.

Source: ``RaftUtil.java``, ``KafkaRaftClient.java`` (apache/kafka 4.3.1; KIP-630, 853, 1186).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla.controller.limits import MAX_QUORUM_REQUEST_ITEMS
from ottla.controller.raft.messages.conversion_types import (
    TOO_MANY_LISTED_MESSAGE,
    DecodedRaftResponse,
    RaftErrorResponse,
    error_code_of,
    find_leader_endpoint,
)
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AddVoter,
    FetchSnapshot,
    KRaftVersionsResponse,
    RaftFetchSnapshotResponse,
    RaftRequest,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    VoterChangeResponse,
)
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.codec.schema import Message, Opaque
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import update_raft_voter
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.control_records import Endpoint as VoterEndpoint
from ottla.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

KRAFT_VERSION = "kraft.version"
SOFTWARE_NAME = "ottla"
TIMEOUT_MS = 2000
"""``controller.quorum.request.timeout.ms`` in AddRaftVoter requests; ignored by the receiver (R-247)."""
_NODE_ENDPOINTS_MIN_VERSION = 1

VoterRequestMessage = (
    FetchSnapshotRequest | AddRaftVoterRequest | RemoveRaftVoterRequest | update_raft_voter.UpdateRaftVoterRequest
)
VoterResponseMessage = (
    FetchSnapshotResponse
    | AddRaftVoterResponse
    | RemoveRaftVoterResponse
    | update_raft_voter.UpdateRaftVoterResponse
    | ApiVersionsResponse
)


class _ListenerLike(Protocol):
    name: str
    host: str
    port: int


def _voter_endpoints(listeners: Iterable[_ListenerLike]) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(x.name, x.host, x.port) for x in listeners)


# ------------------------------------------------------------------ requests of this node


def to_fetch_snapshot_request(request: FetchSnapshot, cluster_id: str) -> FetchSnapshotRequest:
    """Return the request message for the next chunk of a snapshot, from the state machine's `FetchSnapshot` (R-234)."""
    part = FetchSnapshotRequestPartitionSnapshot(
        0,
        request.epoch,
        FetchSnapshotRequestSnapshotId(*request.snapshot),
        request.position,
        request.replica.directory_id,
    )
    topic = FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [part])
    return FetchSnapshotRequest(cluster_id, request.replica.id, request.max_bytes, [topic])


def to_voter_request(request: AddVoter | RemoveVoter | UpdateVoter, cluster_id: str) -> Message:
    """Return the AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter request message (R-246 to R-250)."""
    key = request.voter
    match request:
        case AddVoter():
            listeners = [Listener(x.name, x.host, x.port) for x in request.endpoints]
            return AddRaftVoterRequest(
                cluster_id, TIMEOUT_MS, key.id, key.directory_id, listeners, request.ack_when_committed
            )
        case RemoveVoter():
            return RemoveRaftVoterRequest(cluster_id, key.id, key.directory_id)
        case UpdateVoter():
            places = [update_raft_voter.Listener(x.name, x.host, x.port) for x in request.endpoints]
            feature = update_raft_voter.KRaftVersionFeature(request.min_version, request.max_version)
            return update_raft_voter.UpdateRaftVoterRequest(
                cluster_id, request.epoch, key.id, key.directory_id, places, feature
            )


def to_api_versions_request() -> ApiVersionsRequest:
    """Return the ApiVersions request that queries the kraft.versions of a new voter.

    ApiVersions responses below version 4 leave out features with a minimum version of 0 (R-248).
    """
    return ApiVersionsRequest(SOFTWARE_NAME, "1")


# ------------------------------------------------------------------ requests of other nodes


def from_message(message: VoterRequestMessage) -> RaftRequest | RaftErrorResponse:
    """Return the state machine's request for a FetchSnapshot or voter change message, or an error (R-234).

    INVALID_REQUEST for a malformed one or too many listeners, UNKNOWN_TOPIC_OR_PARTITION for another partition.
    """
    if (
        isinstance(message, AddRaftVoterRequest | update_raft_voter.UpdateRaftVoterRequest)
        and len(message.listeners) > MAX_QUORUM_REQUEST_ITEMS
    ):
        return RaftErrorResponse(ErrorCode.INVALID_REQUEST, TOO_MANY_LISTED_MESSAGE)
    match message:
        case FetchSnapshotRequest():
            return _snapshot_of(message)
        case AddRaftVoterRequest():
            key = ReplicaKey(message.voter_id, message.voter_directory_id)
            return AddVoter(key, _voter_endpoints(message.listeners), message.ack_when_committed)
        case RemoveRaftVoterRequest():
            return RemoveVoter(ReplicaKey(message.voter_id, message.voter_directory_id))
        case update_raft_voter.UpdateRaftVoterRequest():
            key = ReplicaKey(message.voter_id, message.voter_directory_id)
            feature = message.k_raft_version_feature
            versions = (feature.min_supported_version, feature.max_supported_version)
            return UpdateVoter(key, message.current_leader_epoch, _voter_endpoints(message.listeners), *versions)


def _snapshot_of(message: FetchSnapshotRequest) -> FetchSnapshot | RaftErrorResponse:
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        return RaftErrorResponse(ErrorCode.INVALID_REQUEST)
    part = message.topics[0].partitions[0]
    if (message.topics[0].name, part.partition) != (METADATA_TOPIC, 0):
        return RaftErrorResponse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return FetchSnapshot(
        ReplicaKey(message.replica_id, part.replica_directory_id),
        part.current_leader_epoch,
        (part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.position,
        message.max_bytes,
    )


# ------------------------------------------------------------------ responses of this node


def error_response_message(
    message: VoterRequestMessage,
    refusal: RaftErrorResponse,
    leader_id: int = NO_NODE_ID,
    epoch: int = -1,
    leader: ListenerEndpoint | None = None,
) -> Message:
    """Return the response message to ``message`` with an error for the whole request.

    For FetchSnapshot UNKNOWN_TOPIC_OR_PARTITION is in the partition's row. Leader id, epoch and the endpoint ``leader``
    are set in UpdateRaftVoter responses only.
    """
    match message:
        case FetchSnapshotRequest():
            if refusal.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return FetchSnapshotResponse(error_code=refusal.error)
            topic = message.topics[0]
            row = FetchSnapshotResponsePartitionSnapshot(topic.partitions[0].partition, refusal.error)
            row.unaligned_records = b""
            return FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(topic.name, [row])])
        case AddRaftVoterRequest():
            return AddRaftVoterResponse(error_code=refusal.error, error_message=refusal.message)
        case RemoveRaftVoterRequest():
            return RemoveRaftVoterResponse(error_code=refusal.error, error_message=refusal.message)
        case update_raft_voter.UpdateRaftVoterRequest():
            return _update_voter_response(refusal.error, leader_id, epoch, leader)


def _update_voter_response(
    error: int, leader_id: int, epoch: int, leader: ListenerEndpoint | None
) -> update_raft_voter.UpdateRaftVoterResponse:
    current = update_raft_voter.CurrentLeader(leader_id, epoch)
    if leader is not None and leader_id != NO_NODE_ID:
        current.host, current.port = leader.host, leader.port
    return update_raft_voter.UpdateRaftVoterResponse(error_code=error, current_leader=current)


def to_fetch_snapshot_response(
    answer: RaftFetchSnapshotResponse, *, leader: ListenerEndpoint | None, version: int, raw: Opaque = None
) -> FetchSnapshotResponse:
    """Return the FetchSnapshot response message with the bytes ``raw`` of the snapshot, in a version (R-234).

    ``leader``: endpoint of the leader, None if unknown.
    """
    row = FetchSnapshotResponsePartitionSnapshot(
        0,
        answer.error,
        current_leader=LeaderIdAndEpoch(answer.leader_id, answer.epoch),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=b"" if raw is None else raw,
    )
    if answer.error == ErrorCode.NONE:
        row.snapshot_id = FetchSnapshotResponseSnapshotId(*answer.snapshot)
    out = FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(METADATA_TOPIC, [row])])
    if leader is not None and answer.leader_id != NO_NODE_ID and version >= _NODE_ENDPOINTS_MIN_VERSION:
        out.node_endpoints = [NodeEndpoint(answer.leader_id, leader.host, leader.port)]
    return out


def to_voter_response(
    request: AddVoter | RemoveVoter | UpdateVoter, answer: VoterChangeResponse, leader: ListenerEndpoint | None
) -> Message:
    """Return the response to a voter change; only UpdateRaftVoter responses have the leader's endpoint (R-249)."""
    match request:
        case AddVoter():
            return AddRaftVoterResponse(error_code=answer.error, error_message=answer.message)
        case RemoveVoter():
            return RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.message)
        case UpdateVoter():
            return _update_voter_response(answer.error, answer.leader_id, answer.epoch, leader)


# ------------------------------------------------------------------ responses of other nodes


def from_response_message(message: VoterResponseMessage, listener: str) -> DecodedRaftResponse | RaftErrorResponse:
    """Return the state machine's response for a FetchSnapshot, voter change or ApiVersions response, or an error.

    Only a FetchSnapshot response gives a `RaftErrorResponse`: if it has an error for the whole request, or is not for
    the metadata partition alone. An error of the other messages is in the returned response. ``listener``: listener
    name of the leader's endpoint in the result.
    """
    match message:
        case FetchSnapshotResponse():
            return _from_fetch_snapshot_response(message, listener)
        case update_raft_voter.UpdateRaftVoterResponse():
            leader = message.current_leader
            answer = VoterChangeResponse(error_code_of(message.error_code), leader.leader_epoch, leader.leader_id)
            named = leader.leader_id != NO_NODE_ID and leader.host != ""
            return DecodedRaftResponse(answer, ListenerEndpoint(listener, leader.host, leader.port) if named else None)
        case ApiVersionsResponse():
            return DecodedRaftResponse(_versions_of(message))
        case _:
            return DecodedRaftResponse(
                VoterChangeResponse(error_code_of(message.error_code), message=message.error_message)
            )


def _from_fetch_snapshot_response(
    message: FetchSnapshotResponse, listener: str
) -> DecodedRaftResponse | RaftErrorResponse:
    if message.error_code != ErrorCode.NONE:
        return RaftErrorResponse(error_code_of(message.error_code))
    if [(t.name, [p.index for p in t.partitions]) for t in message.topics] != [(METADATA_TOPIC, [0])]:
        return RaftErrorResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    row = message.topics[0].partitions[0]
    leader = row.current_leader
    answer = RaftFetchSnapshotResponse(
        error_code_of(row.error_code),
        leader.leader_epoch,
        leader.leader_id,
        (row.snapshot_id.end_offset, row.snapshot_id.epoch),
        row.size,
        row.position,
    )
    return DecodedRaftResponse(
        answer, find_leader_endpoint(message.node_endpoints, leader.leader_id, listener), row.unaligned_records
    )


def _versions_of(message: ApiVersionsResponse) -> KRaftVersionsResponse:
    features: Sequence[Any] = message.supported_features
    speaks = next(((x.min_version, x.max_version) for x in features if x.name == KRAFT_VERSION), (-1, -1))
    return KRaftVersionsResponse(error_code_of(message.error_code), *speaks)
