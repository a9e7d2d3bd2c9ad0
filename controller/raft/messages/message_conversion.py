"""Conversion of Raft requests and responses between the state machine's values and Kafka's messages.

A request for another cluster or another partition than ``__cluster_metadata-0`` gets an error here and does not reach
the state machine. A response with a leader must have its endpoint too, or a JVM controller stops (R-256). Details of
FetchSnapshot, voter changes and ApiVersions are in `voter_message_conversion`.

Source: ``RaftUtil.java``, ``KafkaRaftClient.java`` (apache/kafka 4.3.1; KIP-595, 853, 996).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.controller.limits import MAX_QUORUM_REQUEST_ITEMS
from ottla.controller.raft.messages import voter_message_conversion
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
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchSnapshot,
    QueryKRaftVersions,
    RaftFetchResponse,
    RaftRequest,
    RaftResponse,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    UpgradeKRaftVersion,
    Vote,
    VoterChangeResponse,
)
from ottla.log.directory.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.wire.codec.schema import ZERO_UUID, Message, Opaque
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    BeginQuorumEpochResponse,
    BeginQuorumEpochResponsePartitionData,
    BeginQuorumEpochResponseTopicData,
    LeaderEndpoint,
)
from ottla.wire.messages.begin_quorum_epoch import NodeEndpoint as BeginQuorumEpochNodeEndpoint
from ottla.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
    EndQuorumEpochResponse,
    EndQuorumEpochResponsePartitionData,
    EndQuorumEpochResponseTopicData,
    ReplicaInfo,
)
from ottla.wire.messages.end_quorum_epoch import NodeEndpoint as EndQuorumEpochNodeEndpoint
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from ottla.wire.messages.fetch import NodeEndpoint as FetchNodeEndpoint
from ottla.wire.messages.vote import NodeEndpoint as VoteNodeEndpoint
from ottla.wire.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)

N = TypeVar("N")
_RaftRequestMessage = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest

_REPLICA_ID_FIELD_MAX_VERSION = 14
_FETCH_NODE_ENDPOINTS_MIN_VERSION = 17
NODE_ENDPOINTS_MIN_VERSION = 1
"""First version of the Vote, BeginQuorumEpoch and EndQuorumEpoch responses with ``NodeEndpoints``."""


# ------------------------------------------------------------------ requests of this node


def to_message(
    request: RaftRequest, to: ReplicaKey, cluster_id: str, version: int, endpoints: tuple[ListenerEndpoint, ...] = ()
) -> Message:
    """Return the message of a request to ``to`` in API version ``version``.

    ``endpoints``: this node's own, sent in BeginQuorumEpoch (R-213 to R-215, R-222).
    """
    match request:
        case Vote():
            return _vote(request, to, cluster_id)
        case BeginEpoch(leader_id, epoch):
            part = BeginQuorumEpochRequestPartitionData(0, to.directory_id, leader_id, epoch)
            topic = BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [part])
            return BeginQuorumEpochRequest(cluster_id, to.id, [topic], [LeaderEndpoint(*x) for x in endpoints])
        case EndEpoch(leader_id, epoch, successors):
            candidates = [ReplicaInfo(x.id, x.directory_id) for x in successors]
            row = EndQuorumEpochRequestPartitionData(0, leader_id, epoch, [x.id for x in successors], candidates)
            return EndQuorumEpochRequest(cluster_id, [EndQuorumEpochRequestTopicData(METADATA_TOPIC, [row])])
        case Fetch():
            return _fetch(request, cluster_id, version)
        case FetchSnapshot():
            return voter_message_conversion.to_fetch_snapshot_request(request, cluster_id)
        case AddVoter() | RemoveVoter() | UpdateVoter():
            return voter_message_conversion.to_voter_request(request, cluster_id)
        case QueryKRaftVersions():
            return voter_message_conversion.to_api_versions_request()
        case UpgradeKRaftVersion():
            raise AssertionError("kraft.version is raised by the leader's own controller")


def _vote(vote: Vote, to: ReplicaKey, cluster_id: str) -> VoteRequest:
    part = VoteRequestPartitionData(
        replica_epoch=vote.epoch,
        replica_id=vote.candidate.id,
        replica_directory_id=vote.candidate.directory_id,
        voter_directory_id=to.directory_id,
        last_offset_epoch=vote.last_epoch,
        last_offset=vote.end_offset,
        pre_vote=vote.pre_vote,
    )
    return VoteRequest(cluster_id, to.id, [VoteRequestTopicData(METADATA_TOPIC, [part])])


def _fetch(fetch: Fetch, cluster_id: str, version: int) -> FetchRequest:
    part = FetchPartition(
        current_leader_epoch=fetch.epoch,
        fetch_offset=fetch.offset,
        last_fetched_epoch=fetch.last_epoch,
        replica_directory_id=fetch.replica.directory_id,
        high_watermark=fetch.high_watermark,
    )
    request = FetchRequest(
        cluster_id=cluster_id,
        max_wait_ms=fetch.max_wait_ms,
        max_bytes=fetch.max_bytes,
        topics=[FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [part])],
    )
    if version <= _REPLICA_ID_FIELD_MAX_VERSION:
        request.replica_id = fetch.replica.id
    else:
        request.replica_state = ReplicaState(fetch.replica.id)
    return request


# ------------------------------------------------------------------ requests of other nodes


def from_message(message: Message, cluster_id: str) -> RaftRequest | RaftErrorResponse:
    """Return the state machine's request for a request message, or an error that must be the response.

    INCONSISTENT_CLUSTER_ID for another cluster than ``cluster_id``, INVALID_REQUEST for another partition or too many
    entries (R-211 to R-217, R-234); for FetchSnapshot and voter changes see `voter_message_conversion.from_message`.
    """
    assert isinstance(message, _RaftRequestMessage | voter_message_conversion.VoterRequestMessage)
    if message.cluster_id is not None and message.cluster_id != cluster_id:
        why = f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        return RaftErrorResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
    if isinstance(message, voter_message_conversion.VoterRequestMessage):
        return voter_message_conversion.from_message(message)
    if isinstance(message, BeginQuorumEpochRequest) and len(message.leader_endpoints) > MAX_QUORUM_REQUEST_ITEMS:
        return RaftErrorResponse(ErrorCode.INVALID_REQUEST, TOO_MANY_LISTED_MESSAGE)
    if not _is_the_log(message):
        return RaftErrorResponse(ErrorCode.INVALID_REQUEST)
    match message:
        case VoteRequest():
            return _vote_of(message)
        case BeginQuorumEpochRequest():
            begin = message.topics[0].partitions[0]
            meant = _destination_key(message.voter_id, begin.voter_directory_id)
            return BeginEpoch(begin.leader_id, begin.leader_epoch, meant)
        case EndQuorumEpochRequest():
            end = message.topics[0].partitions[0]
            if max(len(end.preferred_candidates), len(end.preferred_successors)) > MAX_QUORUM_REQUEST_ITEMS:
                return RaftErrorResponse(ErrorCode.INVALID_REQUEST, TOO_MANY_LISTED_MESSAGE)
            named = tuple(ReplicaKey(x.candidate_id, x.candidate_directory_id) for x in end.preferred_candidates)
            return EndEpoch(end.leader_id, end.leader_epoch, named or tuple(map(ReplicaKey, end.preferred_successors)))
        case FetchRequest():
            return _fetch_of(message)


def _is_the_log(message: _RaftRequestMessage) -> bool:
    if len(message.topics) != 1:
        return False
    topic = message.topics[0]
    if isinstance(topic, FetchTopic):
        right = topic.topic_id == METADATA_TOPIC_ID if topic.topic_id != ZERO_UUID else topic.topic == METADATA_TOPIC
        return right and len(topic.partitions) == 1 and topic.partitions[0].partition == 0
    if topic.topic_name != METADATA_TOPIC or len(topic.partitions) != 1:
        return False
    return topic.partitions[0].partition_index == 0


def _destination_key(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    """Return the key of the voter to which a request is addressed; None if the request has none (older versions)."""
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


def _vote_of(message: VoteRequest) -> Vote:
    part = message.topics[0].partitions[0]
    return Vote(
        ReplicaKey(part.replica_id, part.replica_directory_id),
        part.replica_epoch,
        part.last_offset_epoch,
        part.last_offset,
        part.pre_vote,
        _destination_key(message.voter_id, part.voter_directory_id),
    )


def _fetch_of(message: FetchRequest) -> Fetch:
    part = message.topics[0].partitions[0]
    replica_id = message.replica_id if message.replica_id >= 0 else message.replica_state.replica_id
    return Fetch(
        ReplicaKey(replica_id, part.replica_directory_id),
        part.current_leader_epoch,
        part.fetch_offset,
        part.last_fetched_epoch,
        part.high_watermark,
        message.max_wait_ms,
        message.max_bytes,
    )


# ------------------------------------------------------------------ responses of this node


def error_response_message(
    request: Message,
    refusal: RaftErrorResponse,
    leader_id: int = NO_NODE_ID,
    epoch: int = -1,
    leader: ListenerEndpoint | None = None,
) -> Message:
    """Return the response message to ``request`` with an error for the whole request.

    ``leader_id``, ``epoch`` and ``leader`` (its endpoint) are set in UpdateRaftVoter responses only.
    """
    assert isinstance(request, _RaftRequestMessage | voter_message_conversion.VoterRequestMessage)
    match request:
        case VoteRequest():
            return VoteResponse(refusal.error)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(refusal.error)
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(refusal.error)
        case FetchRequest():
            return FetchResponse(error_code=refusal.error)
        case _:
            return voter_message_conversion.error_response_message(request, refusal, leader_id, epoch, leader)


def to_response_message(
    request: RaftRequest, answer: RaftResponse | VoterChangeResponse, leader: ListenerEndpoint | None
) -> Message:
    """Return the message of a response to Vote, BeginQuorumEpoch, EndQuorumEpoch or a voter change.

    ``leader``: endpoint of the leader in the response; None if unknown or not supported by the version (R-213).
    """
    if isinstance(answer, VoterChangeResponse):
        assert isinstance(request, AddVoter | RemoveVoter | UpdateVoter)
        return voter_message_conversion.to_voter_response(request, answer, leader)
    common = (0, answer.error, answer.leader_id, answer.epoch)
    match request:
        case Vote():
            vote = VoteResponseTopicData(METADATA_TOPIC, [VoteResponsePartitionData(*common, answer.vote_granted)])
            return VoteResponse(
                topics=[vote], node_endpoints=_node_endpoints(VoteNodeEndpoint, answer.leader_id, leader)
            )
        case BeginEpoch():
            begin = BeginQuorumEpochResponseTopicData(METADATA_TOPIC, [BeginQuorumEpochResponsePartitionData(*common)])
            named = _node_endpoints(BeginQuorumEpochNodeEndpoint, answer.leader_id, leader)
            return BeginQuorumEpochResponse(topics=[begin], node_endpoints=named)
        case _:
            end = EndQuorumEpochResponseTopicData(METADATA_TOPIC, [EndQuorumEpochResponsePartitionData(*common)])
            return EndQuorumEpochResponse(
                topics=[end], node_endpoints=_node_endpoints(EndQuorumEpochNodeEndpoint, answer.leader_id, leader)
            )


def to_fetch_response_message(
    answer: RaftFetchResponse, *, log_start: int, leader: ListenerEndpoint | None, version: int, records: Opaque = None
) -> FetchResponse:
    """Return the message of a Fetch response with its batches, in API version ``version`` (R-218, R-221).

    ``log_start``: start offset of this node's log. ``leader``: endpoint of the leader, None if unknown. ``records``:
    encoded batches.
    """
    row = PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=log_start,
        current_leader=LeaderIdAndEpoch(answer.leader_id, answer.epoch),
        records=records if records is not None else b"",
    )
    if answer.diverging is not None:
        row.diverging_epoch = EpochEndOffset(*answer.diverging)
    if answer.snapshot is not None:
        row.snapshot_id = SnapshotId(*answer.snapshot)
    topic = FetchableTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [row])
    response = FetchResponse(responses=[topic])
    if leader is not None and answer.leader_id != NO_NODE_ID and version >= _FETCH_NODE_ENDPOINTS_MIN_VERSION:
        response.node_endpoints = [FetchNodeEndpoint(answer.leader_id, leader.host, leader.port)]
    return response


# ------------------------------------------------------------------ responses of other nodes


def from_response_message(message: Message, listener: str) -> DecodedRaftResponse | RaftErrorResponse:
    """Return the state machine's response for a response message, or the error for the whole of it (R-209).

    That is UNKNOWN_SERVER_ERROR if the response is not for the metadata partition alone. After an error the request is
    retried. ``listener``: listener name of the leader's endpoint in the result.
    """
    if isinstance(message, voter_message_conversion.VoterResponseMessage):
        return voter_message_conversion.from_response_message(message, listener)
    assert isinstance(message, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse)
    if message.error_code != ErrorCode.NONE:
        return RaftErrorResponse(error_code_of(message.error_code))
    if isinstance(message, FetchResponse):
        return _from_fetch_response(message, listener)
    if [len(t.partitions) for t in message.topics] != [1] or message.topics[0].topic_name != METADATA_TOPIC:
        return RaftErrorResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    row = message.topics[0].partitions[0]
    granted = isinstance(row, VoteResponsePartitionData) and row.vote_granted
    answer = RaftResponse(error_code_of(row.error_code), row.leader_epoch, row.leader_id, granted)
    return DecodedRaftResponse(answer, find_leader_endpoint(message.node_endpoints, row.leader_id, listener))


def _from_fetch_response(message: FetchResponse, listener: str) -> DecodedRaftResponse | RaftErrorResponse:
    if [len(t.partitions) for t in message.responses] != [1]:
        return RaftErrorResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    row = message.responses[0].partitions[0]
    diverging = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    snapshot = (row.snapshot_id.end_offset, row.snapshot_id.epoch)
    leader = row.current_leader
    answer = RaftFetchResponse(
        error_code_of(row.error_code),
        leader.leader_epoch,
        leader.leader_id,
        high_watermark=row.high_watermark,
        diverging=diverging if min(diverging) >= 0 else None,
        snapshot=snapshot if min(snapshot) >= 0 else None,
    )
    return DecodedRaftResponse(
        answer, find_leader_endpoint(message.node_endpoints, leader.leader_id, listener), row.records
    )


def _node_endpoints(kind: Callable[[int, str, int], N], leader_id: int, leader: ListenerEndpoint | None) -> list[N]:
    return [] if leader is None or leader_id == NO_NODE_ID else [kind(leader_id, leader.host, leader.port)]
