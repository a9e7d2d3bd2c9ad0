"""Conversion of snapshot and voter change messages, and validation of received messages."""

from __future__ import annotations

import pytest

from ottla.controller.raft.messages import message_conversion
from ottla.controller.raft.messages.message_conversion import DecodedRaftResponse, RaftErrorResponse
from ottla.controller.raft.messages.voter_message_conversion import to_fetch_snapshot_response
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AddVoter,
    FetchSnapshot,
    KRaftVersionsResponse,
    QueryKRaftVersions,
    RaftFetchSnapshotResponse,
    RaftRequest,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    UpgradeKRaftVersion,
    VoterChangeResponse,
)
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import update_raft_voter
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.wire.messages.control_records import Endpoint as Place
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterResponse

CLUSTER = "a-cluster"
OURS, THEIRS = bytes(range(1, 17)), bytes(range(17, 33))
ME, PEER = ReplicaKey(1, OURS), ReplicaKey(2, THEIRS)
HERE = ListenerEndpoint("CONTROLLER", "one.example", 9093)
PLACES = (Place("CONTROLLER", "one.example", 9093), Place("SECOND", "one.example", 9094))
SNAPSHOT = FetchSnapshot(ME, 8, (120, 6), 4096)
ADD = AddVoter(ME, PLACES, ack_when_committed=False)
REMOVE = RemoveVoter(ReplicaKey(1, THEIRS))
UPDATE = UpdateVoter(ME, 8, PLACES, 0, 1)


def through_bytes(message: Message, version: int) -> Message:
    return compiler.decode_exact(type(message), version, compiler.encode(message, version))


REQUESTS = [
    (SNAPSHOT, 1, SNAPSHOT),
    (SNAPSHOT, 0, SNAPSHOT._replace(replica=ReplicaKey(1))),
    (ADD, 1, ADD),
    (ADD._replace(ack_when_committed=True), 0, ADD._replace(ack_when_committed=True)),
    (REMOVE, 0, REMOVE),
    (UPDATE, 0, UPDATE),
]


@pytest.mark.parametrize(("request_", "version", "arrives"), REQUESTS)
def test_voter_request_conversion_keeps_fields_of_its_version(
    request_: RaftRequest, version: int, arrives: RaftRequest
) -> None:
    message = message_conversion.to_message(request_, PEER, CLUSTER, version)
    assert message_conversion.from_message(through_bytes(message, version), CLUSTER) == arrives


@pytest.mark.parametrize(("request_", "version"), [(x, v) for x, v, _ in REQUESTS])
def test_from_message_other_cluster_id_is_rejected_and_null_is_accepted(request_: RaftRequest, version: int) -> None:
    message = message_conversion.to_message(request_, PEER, CLUSTER, version)
    refusal = message_conversion.from_message(message, "another")
    why = f'The given id "{CLUSTER}" doesn\'t match the cluster id "another"'
    assert refusal == RaftErrorResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
    answer = through_bytes(message_conversion.error_response_message(message, refusal, 8, 3, HERE), version)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]
    if isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse):
        assert answer.error_message == why
    if isinstance(answer, update_raft_voter.UpdateRaftVoterResponse):
        assert answer.current_leader == update_raft_voter.CurrentLeader(8, 3, HERE.host, HERE.port)
    message.cluster_id = None  # type: ignore[attr-defined]
    assert not isinstance(message_conversion.from_message(message, CLUSTER), RaftErrorResponse)


@pytest.mark.behaviour("R-247")
def test_to_message_add_voter_has_kafkas_timeout() -> None:
    message = message_conversion.to_message(ADD, PEER, CLUSTER, 1)
    assert isinstance(message, AddRaftVoterRequest)
    assert message.timeout_ms == 2000


def test_to_message_upgrade_kraft_version_raises_assertion_error() -> None:
    with pytest.raises(AssertionError, match="own controller"):
        message_conversion.to_message(UpgradeKRaftVersion(1), PEER, CLUSTER, 0)


@pytest.mark.behaviour("R-234")
def test_from_message_fetch_snapshot_of_other_partition_returns_row_error() -> None:
    for name, partition in (("orders", 0), (METADATA_TOPIC, 1)):
        message = message_conversion.to_message(SNAPSHOT, PEER, CLUSTER, 1)
        assert isinstance(message, FetchSnapshotRequest)
        message.topics[0].name, message.topics[0].partitions[0].partition = name, partition
        refusal = message_conversion.from_message(message, CLUSTER)
        assert refusal == RaftErrorResponse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answer = through_bytes(message_conversion.error_response_message(message, refusal), 1)
        assert isinstance(answer, FetchSnapshotResponse)
        (row,) = answer.topics[0].partitions
        found = (answer.error_code, answer.topics[0].name, row.index, row.error_code)
        assert found == (0, name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert message_conversion.from_response_message(answer, "X") == RaftErrorResponse(
            ErrorCode.UNKNOWN_SERVER_ERROR
        )
    for topics in ([], message.topics * 2):
        message.topics = topics
        refusal = message_conversion.from_message(message, CLUSTER)
        assert refusal == RaftErrorResponse(ErrorCode.INVALID_REQUEST)
        answer = through_bytes(message_conversion.error_response_message(message, refusal), 1)
        assert message_conversion.from_response_message(answer, "X") == refusal


GIVEN = RaftFetchSnapshotResponse(ErrorCode.NONE, 8, 3, (120, 6), 5000, 4096)


@pytest.mark.parametrize(
    ("response", "version", "where"),
    [
        (GIVEN, 1, HERE),
        (GIVEN, 0, None),
        (RaftFetchSnapshotResponse(ErrorCode.FENCED_LEADER_EPOCH, 9, NO_NODE_ID, (0, 0)), 1, None),
    ],
)
def test_fetch_snapshot_response_conversion_keeps_chunk(
    response: RaftFetchSnapshotResponse, version: int, where: ListenerEndpoint | None
) -> None:
    message = to_fetch_snapshot_response(response, leader=HERE, version=version, raw=b"raw bytes")
    decoded = message_conversion.from_response_message(through_bytes(message, version), "CONTROLLER")
    assert isinstance(decoded, DecodedRaftResponse)
    assert (decoded.response, decoded.leader_endpoint, bytes(decoded.records)) == (response, where, b"raw bytes")


def test_voter_change_response_conversion_keeps_error_and_message() -> None:
    response = VoterChangeResponse(ErrorCode.DUPLICATE_VOTER, 8, 3, "there is one")
    for request, version, answer_class in ((ADD, 1, AddRaftVoterResponse), (REMOVE, 0, RemoveRaftVoterResponse)):
        message = message_conversion.to_response_message(request, response, HERE)
        assert isinstance(message, answer_class)
        decoded = message_conversion.from_response_message(through_bytes(message, version), "CONTROLLER")
        assert decoded == DecodedRaftResponse(VoterChangeResponse(ErrorCode.DUPLICATE_VOTER, message="there is one"))


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize(("leader_id", "leader", "where"), [(3, HERE, HERE), (3, None, None), (NO_NODE_ID, HERE, None)])
def test_update_voter_response_conversion_keeps_leader_and_endpoint(
    leader_id: int, leader: ListenerEndpoint | None, where: ListenerEndpoint | None
) -> None:
    response = VoterChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 8, leader_id)
    message = message_conversion.to_response_message(UPDATE, response, leader)
    assert isinstance(message, update_raft_voter.UpdateRaftVoterResponse)
    assert message_conversion.from_response_message(through_bytes(message, 0), "CONTROLLER") == DecodedRaftResponse(
        response, where
    )


@pytest.mark.behaviour("R-248")
def test_api_versions_conversion_returns_kraft_versions() -> None:
    request = message_conversion.to_message(QueryKRaftVersions(PEER, PLACES), PEER, CLUSTER, 4)
    assert isinstance(through_bytes(request, 4), ApiVersionsRequest)
    features = [SupportedFeatureKey("metadata.version", 7, 30), SupportedFeatureKey("kraft.version", 0, 1)]
    message = ApiVersionsResponse(supported_features=features)
    assert message_conversion.from_response_message(through_bytes(message, 4), "X") == DecodedRaftResponse(
        KRaftVersionsResponse(ErrorCode.NONE, 0, 1)
    )
    refused = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION)
    assert message_conversion.from_response_message(refused, "X") == DecodedRaftResponse(
        KRaftVersionsResponse(ErrorCode.UNSUPPORTED_VERSION)
    )


MANY = [Listener(str(n), "h", 9) for n in range(1001)]


@pytest.mark.parametrize(
    "message",
    [
        AddRaftVoterRequest(CLUSTER, 1000, 2, THEIRS, MANY),
        update_raft_voter.UpdateRaftVoterRequest(
            CLUSTER, 1, 2, THEIRS, [update_raft_voter.Listener(x.name, x.host, x.port) for x in MANY]
        ),
    ],
    ids=["add", "update"],
)
def test_from_message_voter_request_with_too_many_endpoints_is_rejected(message: Message) -> None:
    refused = message_conversion.from_message(message, CLUSTER)
    assert isinstance(refused, RaftErrorResponse)
    assert refused.error == ErrorCode.INVALID_REQUEST
    del message.listeners[1000:]  # type: ignore[attr-defined]
    assert not isinstance(message_conversion.from_message(message, CLUSTER), RaftErrorResponse)
