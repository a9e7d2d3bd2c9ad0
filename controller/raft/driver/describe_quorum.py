"""DescribeQuorum: leader, voters and observers of the metadata log with their end offsets, computed on the leader.

Source: ``KafkaRaftClient.handleDescribeQuorumRequest``, ``LeaderState.describeQuorum`` (apache/kafka 4.3.1).

KIP-595; times of the last fetch: KIP-836; directories and addresses: KIP-853.
"""

from __future__ import annotations

from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.state_machine.epoch_states import (
    OBSERVER_SESSION_TIMEOUT_MS,
    RaftLeaderState,
    ReplicaProgress,
)
from ottla.controller.raft.state_machine.events import ReplicaKey
from ottla.jobs.job import Job
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

UNKNOWN_TIMESTAMP = -1
_ERROR_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
}


def describe_quorum(
    raft: RaftDriver, request: DescribeQuorumRequest, version: int, now_ms: int
) -> Job[DescribeQuorumResponse]:
    """Return the response to a DescribeQuorum request in ``version``, as a job.

    If the request names another partition than ``__cluster_metadata-0``, all its partitions have an error row. A node
    that is not the leader returns NOT_LEADER_OR_FOLLOWER (R-251). Observers without a fetch for
    `OBSERVER_SESSION_TIMEOUT_MS` are left out.

    ``now_ms``: wall clock, to which the times of the last fetch are converted.
    """
    if not _is_the_log(request):
        return (yield from _error_for_all(request, version))
    machine = raft.machine
    if not isinstance(machine.state, RaftLeaderState):
        row = _error_row(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [row])])
    voters = machine.voters.current
    row = DescribeQuorumResponsePartitionData(
        leader_id=machine.local_replica.id,
        leader_epoch=machine.epoch,
        high_watermark=machine.advertised_high_watermark,
        current_voters=[
            _replica_row(raft, v, machine.state.replicas.get(v, ReplicaProgress()), version, now_ms) for v in voters
        ],
        observers=[
            _replica_row(raft, key, progress, version, now_ms)
            for key, progress in machine.state.replicas.items()
            if key not in voters and 0 <= raft.env.monotonic_ms() - progress.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS
        ],
    )
    out = DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [row])])
    if version >= 2:
        out.nodes = [_node_row(raft, v.id) for v in voters]
    return out


def _is_the_log(request: DescribeQuorumRequest) -> bool:
    """Return True if a request names partition 0 of ``__cluster_metadata`` and no other partition."""
    if len(request.topics) != 1:
        return False
    topic = next(iter(request.topics))
    if topic.topic_name != METADATA_TOPIC or len(topic.partitions) != 1:
        return False
    return next(iter(topic.partitions)).partition_index == 0


def _error_for_all(request: DescribeQuorumRequest, version: int) -> Job[DescribeQuorumResponse]:
    """Return the response with UNKNOWN_TOPIC_OR_PARTITION for each partition of a request, as a job."""
    topics: list[DescribeQuorumResponseTopicData] = response_array(DescribeQuorumResponse, version)
    for topic in request.topics:
        rows: list[DescribeQuorumResponsePartitionData] = response_array(DescribeQuorumResponse, version)
        for part in topic.partitions:
            rows.append(_error_row(part.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            yield None
        topics.append(DescribeQuorumResponseTopicData(topic.topic_name, rows))
        yield None
    return DescribeQuorumResponse(topics=topics)


def _error_row(number: int, error: ErrorCode) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(number, error, _ERROR_MESSAGES[error])


def _replica_row(
    raft: RaftDriver, key: ReplicaKey, progress: ReplicaProgress, version: int, now_ms: int
) -> ReplicaState:
    """Return the ReplicaState of a voter or observer: end offset, and last fetch times in wall-clock ms or -1."""
    if key.id == raft.machine.local_replica.id:
        end, fetched_ms, caught_up_ms = raft.machine.log_summary.end_offset, now_ms, now_ms
    else:
        ago = raft.env.monotonic_ms() - now_ms
        end = progress.end_offset
        fetched_ms, caught_up_ms = (
            UNKNOWN_TIMESTAMP if at < 0 else int(at - ago)
            for at in (progress.last_fetch_ms, progress.last_caught_up_ms)
        )
    return ReplicaState(key.id, key.directory_id if version >= 2 else ZERO_UUID, end, fetched_ms, caught_up_ms)


def _node_row(raft: RaftDriver, node_id: int) -> Node:
    return Node(node_id, [Listener(e.name, e.host, e.port) for e in raft.addresses.endpoints_of(node_id)])
