"""Conversion of Raft requests and responses to messages of every version, and validation of received messages."""

from __future__ import annotations

import pytest

from ottla.controller.raft.messages import message_conversion
from ottla.controller.raft.messages.message_conversion import DecodedRaftResponse, RaftErrorResponse
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    BeginEpoch,
    EndEpoch,
    Fetch,
    RaftFetchResponse,
    RaftRequest,
    RaftResponse,
    ReplicaKey,
    Vote,
)
from ottla.log.directory.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse, LeaderEndpoint
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.vote import VoteResponse, VoteResponsePartitionData, VoteResponseTopicData

CLUSTER = "a-cluster"
OURS, THEIRS = bytes(range(16)), bytes(range(16, 32))
ME, PEER, THIRD = ReplicaKey(1, OURS), ReplicaKey(2, THEIRS), ReplicaKey(3, bytes(range(32, 48)))
HERE = ListenerEndpoint("CONTROLLER", "one.example", 9093)
PRE_VOTE = Vote(ME, 7, 6, 120, pre_vote=True, voter=PEER)
VOTE = Vote(ME, 8, 6, 120, voter=PEER)
BEGIN = BeginEpoch(1, 8, voter=PEER)
END = EndEpoch(1, 8, (THIRD, PEER))
FETCH = Fetch(ME, 8, 120, 6, 99, 500, 5000)


def nameless(key: ReplicaKey) -> ReplicaKey:
    return ReplicaKey(key.id)


def through_bytes(message: Message, version: int) -> Message:
    return compiler.decode_exact(type(message), version, compiler.encode(message, version))


# Vote, BeginQuorumEpoch and EndQuorumEpoch version 0 have neither directory ids nor receiver; Fetch has both later
#
REQUESTS = [
    (VOTE, 2, VOTE),
    (PRE_VOTE, 2, PRE_VOTE),
    (VOTE, 1, VOTE),
    (VOTE, 0, VOTE._replace(candidate=nameless(ME), voter=None)),
    (BEGIN, 1, BEGIN),
    (BEGIN, 0, BEGIN._replace(voter=None)),
    (END, 1, END),
    (END, 0, END._replace(preferred_successors=(nameless(THIRD), nameless(PEER)))),
    (FETCH, 18, FETCH),
    (FETCH, 17, FETCH._replace(high_watermark=2**63 - 1)),
    (FETCH, 16, FETCH._replace(replica=nameless(ME), high_watermark=2**63 - 1)),
    (FETCH, 14, FETCH._replace(replica=nameless(ME), high_watermark=2**63 - 1)),
    (FETCH, 12, FETCH._replace(replica=nameless(ME), high_watermark=2**63 - 1)),
]


@pytest.mark.parametrize(
    ("request_", "version", "arrives"), REQUESTS, ids=lambda x: str(getattr(x, "__class__", x).__name__)
)
def test_request_conversion_keeps_fields_of_its_version(
    request_: RaftRequest, version: int, arrives: RaftRequest
) -> None:
    message = message_conversion.to_message(request_, PEER, CLUSTER, version, (HERE,))
    assert message_conversion.from_message(through_bytes(message, version), CLUSTER) == arrives


def test_to_message_pre_vote_requires_version_2() -> None:
    """R-207: without version 2 at the peer the voter becomes a candidate at once."""
    with pytest.raises(Exception, match="pre_vote"):
        compiler.encode(message_conversion.to_message(PRE_VOTE, PEER, CLUSTER, 1), 1)


def test_begin_quorum_epoch_contains_endpoints_and_end_quorum_epoch_does_not() -> None:
    """R-214, R-215."""
    begin = message_conversion.to_message(BEGIN, PEER, CLUSTER, 1, (HERE,))
    end = message_conversion.to_message(END, PEER, CLUSTER, 1, (HERE,))
    assert isinstance(begin, BeginQuorumEpochRequest)
    assert isinstance(end, EndQuorumEpochRequest)
    assert begin.leader_endpoints == [LeaderEndpoint("CONTROLLER", "one.example", 9093)]
    assert end.leader_endpoints == []


def test_to_message_raft_fetch_has_no_session_and_kafkas_fields() -> None:
    """R-222."""
    message = message_conversion.to_message(FETCH, PEER, CLUSTER, 18)
    assert isinstance(message, FetchRequest)
    part = message.topics[0].partitions[0]
    assert (message.session_id, message.session_epoch, message.min_bytes) == (0, -1, 0)
    assert (message.max_bytes, message.max_wait_ms, message.cluster_id) == (5000, 500, CLUSTER)
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (1, -1)
    assert (part.current_leader_epoch, part.last_fetched_epoch, part.log_start_offset) == (8, 6, -1)
    old = message_conversion.to_message(FETCH, PEER, CLUSTER, 14)
    assert isinstance(old, FetchRequest)
    assert (old.replica_id, old.replica_state.replica_id) == (1, -1)


def request_message(request: RaftRequest, version: int) -> Message:
    return message_conversion.to_message(request, PEER, CLUSTER, version)


LATEST = [(VOTE, 2, VoteResponse), (BEGIN, 1, BeginQuorumEpochResponse), (END, 1, EndQuorumEpochResponse)]
WITH_FETCH = [*LATEST, (FETCH, 18, FetchResponse)]


@pytest.mark.parametrize(("request_", "version", "answer_class"), WITH_FETCH)
def test_from_message_other_cluster_id_is_rejected_and_null_is_accepted(
    request_: RaftRequest, version: int, answer_class: type[Message]
) -> None:
    message = request_message(request_, version)
    refusal = message_conversion.from_message(message, "another")
    assert isinstance(refusal, RaftErrorResponse)
    assert refusal.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    answer = message_conversion.error_response_message(message, RaftErrorResponse(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert isinstance(answer, answer_class)
    assert message_conversion.from_response_message(through_bytes(answer, version), "CONTROLLER") == RaftErrorResponse(
        refusal.error
    )
    message.cluster_id = None  # type: ignore[attr-defined]
    assert message_conversion.from_message(message, CLUSTER) == request_


@pytest.mark.parametrize(("request_", "version", "answer_class"), WITH_FETCH)
def test_from_message_other_partition_is_rejected(
    request_: RaftRequest, version: int, answer_class: type[Message]
) -> None:
    def changed(change: str) -> Message:
        message = request_message(request_, version)
        topics = message.topics  # type: ignore[attr-defined]
        match change:
            case "no topic":
                topics.clear()
            case "two topics":
                topics.append(topics[0])
            case "another topic" if isinstance(message, FetchRequest):
                topics[0].topic_id = bytes(15) + b"\x02"
            case "another topic":
                topics[0].topic_name = "orders"
            case "no partition":
                topics[0].partitions.clear()
            case "two partitions":
                topics[0].partitions *= 2
            case "another partition" if isinstance(message, FetchRequest):
                topics[0].partitions[0].partition = 1
            case "another partition":
                topics[0].partitions[0].partition_index = 1
        return message

    cases = ("no topic", "two topics", "another topic", "no partition", "two partitions", "another partition")
    found = {case: message_conversion.from_message(changed(case), CLUSTER) for case in cases}
    assert found == dict.fromkeys(cases, RaftErrorResponse(ErrorCode.INVALID_REQUEST))


def test_from_message_fetch_without_topic_id_uses_topic_name() -> None:
    message = request_message(FETCH, 12)
    assert isinstance(message, FetchRequest)
    message.topics[0].topic_id = ZERO_UUID
    assert message_conversion.from_message(message, CLUSTER) == FETCH
    message.topics[0].topic = "orders"
    assert message_conversion.from_message(message, CLUSTER) == RaftErrorResponse(ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(("request_", "version", "answer_class"), LATEST)
def test_response_conversion_keeps_leader_and_endpoint(
    request_: RaftRequest, version: int, answer_class: type[Message]
) -> None:
    response = RaftResponse(ErrorCode.FENCED_LEADER_EPOCH, 9, 3, vote_granted=isinstance(request_, Vote))
    message = message_conversion.to_response_message(request_, response, HERE)
    assert isinstance(message, answer_class)
    assert message_conversion.from_response_message(
        through_bytes(message, version), "CONTROLLER"
    ) == DecodedRaftResponse(response, HERE)
    without_leader = response._replace(leader_id=NO_NODE_ID)
    assert message_conversion.from_response_message(
        message_conversion.to_response_message(request_, without_leader, HERE), "X"
    ) == DecodedRaftResponse(without_leader)
    assert message_conversion.from_response_message(
        message_conversion.to_response_message(request_, response, None), "X"
    ) == DecodedRaftResponse(response)


PLAIN = RaftFetchResponse(ErrorCode.NONE, 8, 3, high_watermark=99)


@pytest.mark.parametrize(
    ("response", "version", "where"),
    [
        (PLAIN, 18, HERE),
        (PLAIN, 17, HERE),
        (PLAIN, 16, None),
        (PLAIN._replace(diverging=(6, 77)), 18, HERE),
        (PLAIN._replace(diverging=(0, 0)), 18, HERE),
        (PLAIN._replace(snapshot=(50, 5)), 18, HERE),
        (PLAIN._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=NO_NODE_ID), 18, None),
    ],
)
def test_fetch_response_conversion_keeps_epochs_offsets_and_records(
    response: RaftFetchResponse, version: int, where: ListenerEndpoint | None
) -> None:
    """R-218, R-221: node endpoints are included from version 17."""
    message = message_conversion.to_fetch_response_message(
        response, log_start=10, leader=HERE, version=version, records=b"batches"
    )
    row = message.responses[0].partitions[0]
    assert (row.log_start_offset, message.responses[0].topic_id) == (10, METADATA_TOPIC_ID)
    decoded = message_conversion.from_response_message(through_bytes(message, version), "CONTROLLER")
    assert isinstance(decoded, DecodedRaftResponse)
    assert (decoded.response, decoded.leader_endpoint, bytes(decoded.records)) == (response, where, b"batches")


def test_from_response_message_malformed_returns_unknown_server_error() -> None:
    nonsense = RaftErrorResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert message_conversion.from_response_message(VoteResponse(), "X") == nonsense
    assert message_conversion.from_response_message(FetchResponse(), "X") == nonsense
    assert message_conversion.from_response_message(VoteResponse(9999), "X") == nonsense
    other = VoteResponse(topics=[VoteResponseTopicData("orders", [VoteResponsePartitionData()])])
    assert message_conversion.from_response_message(other, "X") == nonsense
    other.topics = [VoteResponseTopicData(METADATA_TOPIC, [VoteResponsePartitionData()] * 2)]
    assert message_conversion.from_response_message(other, "X") == nonsense
