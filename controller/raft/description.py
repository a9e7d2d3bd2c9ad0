"""DescribeQuorum: the quorum as its leader sees it.

Source: ``KafkaRaftClient.handleDescribeQuorumRequest``, ``LeaderState.describeQuorum`` (apache/kafka 4.3.1).

KIP-595; times of the last fetch: KIP-836; directories and addresses: KIP-853.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.controller.decision import READ_EVERY
from ottla.controller.raft.events import ReplicaKey
from ottla.controller.raft.leading import OBSERVED_MS
from ottla.controller.raft.shell import Raft
from ottla.controller.raft.states import Leader, Progress
from ottla.log.directory import METADATA_TOPIC
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_quorum as d
from ottla.wire.schema import ZERO_UUID
from ottla.wire.written import StreamingArray

UNKNOWN = -1
_WHY = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
}


def describe(
    raft: Raft, request: d.DescribeQuorumRequest, version: int, now_ms: int
) -> Generator[None, None, d.DescribeQuorumResponse]:
    """Answer as R251 says: the metadata log only, and only its leader."""
    if not _is_the_log(request):
        return (yield from _all_refused(request, version))
    machine = raft.machine
    if not isinstance(machine.state, Leader):
        row = _refused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return d.DescribeQuorumResponse(topics=[d.DescribeQuorumResponseTopicData(METADATA_TOPIC, [row])])
    voters = machine.voters.current
    row = d.DescribeQuorumResponsePartitionData(
        leader_id=machine.me.id,
        leader_epoch=machine.epoch,
        high_watermark=machine.told_high_watermark,
        current_voters=[_state(raft, v, machine.state.ends.get(v, Progress()), version, now_ms) for v in voters],
        observers=[
            _state(raft, key, progress, version, now_ms)
            for key, progress in machine.state.ends.items()
            if key not in voters and 0 <= raft.monotonic_ms - progress.fetched_ms < OBSERVED_MS
        ],
    )
    out = d.DescribeQuorumResponse(topics=[d.DescribeQuorumResponseTopicData(METADATA_TOPIC, [row])])
    if version >= 2:
        out.nodes = [_node(raft, v.id) for v in voters]
    return out


def _is_the_log(request: d.DescribeQuorumRequest) -> bool:
    """Return whether partition 0 of the metadata topic is all that is asked for."""
    if len(request.topics) != 1:
        return False
    topic = next(iter(request.topics))
    if topic.topic_name != METADATA_TOPIC or len(topic.partitions) != 1:
        return False
    return next(iter(topic.partitions)).partition_index == 0


def _all_refused(request: d.DescribeQuorumRequest, version: int) -> Generator[None, None, d.DescribeQuorumResponse]:
    """Return an error for each partition of a request that asks for another topic than the metadata topic."""
    topics: list[d.DescribeQuorumResponseTopicData] = StreamingArray(d.DescribeQuorumResponse, version)
    number = 0
    for topic in request.topics:
        rows: list[d.DescribeQuorumResponsePartitionData] = StreamingArray(d.DescribeQuorumResponse, version)
        for part in topic.partitions:
            rows.append(_refused(part.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            number += 1
            if number % READ_EVERY == 0:
                yield
        topics.append(d.DescribeQuorumResponseTopicData(topic.topic_name, rows))
        number += 1
        if number % READ_EVERY == 0:
            yield
    return d.DescribeQuorumResponse(topics=topics)


def _refused(number: int, error: ErrorCode) -> d.DescribeQuorumResponsePartitionData:
    return d.DescribeQuorumResponsePartitionData(number, error, _WHY[error])


def _state(raft: Raft, key: ReplicaKey, progress: Progress, version: int, now_ms: int) -> d.ReplicaState:
    """A replica's row. The machine's clock is not the wall's."""
    if key.id == raft.machine.me.id:
        end, fetched_ms, caught_up_ms = raft.machine.chain.end, now_ms, now_ms
    else:
        ago = raft.monotonic_ms - now_ms
        end = progress.end
        fetched_ms, caught_up_ms = (
            UNKNOWN if at < 0 else int(at - ago) for at in (progress.fetched_ms, progress.caught_up_ms)
        )
    return d.ReplicaState(key.id, key.directory_id if version >= 2 else ZERO_UUID, end, fetched_ms, caught_up_ms)


def _node(raft: Raft, node_id: int) -> d.Node:
    return d.Node(node_id, [d.Listener(e.name, e.host, e.port) for e in raft.addresses.endpoints_of(node_id)])
