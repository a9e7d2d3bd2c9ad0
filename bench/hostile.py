"""Memory and delay of other clients caused by the largest request of one connection.

``python -m bench.hostile [--elements 200000] [NAME...]``. Each request goes to a new node, behind a small one of its
kind. ``peak``: growth of the node's resident memory during the request; ``of bound``: its share of three times (request
+ response) + 16 MiB; ``held``: the longest step of the node's loop in processor time of its thread, which is
independent of other load; ``wait``: the longest time, by the clock, in which another client waited for ApiVersions
meanwhile.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import telemetry_bombs
from bench.pauses import NodeChildProcess
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_quorum,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    update_features,
)
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import describe_log_dirs as dld
from ottla.wire.messages import describe_topic_partitions as dtp
from ottla.wire.messages import list_groups as lsg
from ottla.wire.messages import list_transactions as lst
from ottla.wire.messages import offset_for_leader_epoch as ole

FIXED_BYTES = 16 << 20
TIMEOUT_S = 180
PROBE_INTERVAL_S = 0.002
RequestFactory = Callable[[int], Message]


class LargeRequest(NamedTuple):
    """Request whose number of elements is chosen: API, version, and function that creates it with ``n`` elements."""

    key: ApiKey
    version: int
    make: RequestFactory
    is_behind: bool = False
    """True to send a small request before it on the same connection."""


def _fetch(n: int) -> Message:
    parts = [fetch.FetchPartition(i, 5, 10**6 + i, -1, -1, 1 << 20) for i in range(n)]
    return fetch.FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[fetch.FetchTopic("t", partitions=parts)])


def _fetch_topics(n: int) -> Message:
    topics = [fetch.FetchTopic(f"t{i}", partitions=[fetch.FetchPartition(0, 5, i, -1, -1, 1)]) for i in range(n // 2)]
    return fetch.FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)


def _metadata(n: int) -> Message:
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=f"topic-{i}") for i in range(n)], False)


def _single_name(n: int) -> Message:
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")] * n, False)


def _produce(n: int) -> Message:
    parts = [produce.PartitionProduceData(i, b"") for i in range(n)]
    return produce.ProduceRequest(None, 1, 1000, [produce.TopicProduceData("t", partition_data=parts)])


def _list_offsets(n: int) -> Message:
    return list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(i, -1, -1) for i in range(n)])]
    )


def _offset_commit(n: int) -> Message:
    parts = [offset_commit.OffsetCommitRequestPartition(i, 10**6 + i, -1, "") for i in range(n)]
    return offset_commit.OffsetCommitRequest(
        "g", topics=[offset_commit.OffsetCommitRequestTopic("t", partitions=parts)]
    )


def _offset_fetch(n: int) -> Message:
    topics = [offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=list(range(n)))]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=topics)])


def _epochs(n: int) -> Message:
    parts = [ole.OffsetForLeaderPartition(i, 0, 0) for i in range(n)]
    return ole.OffsetForLeaderEpochRequest(topics=[ole.OffsetForLeaderTopic("t", parts)])


def _names(n: int) -> list[str]:
    return [f"t{i}" for i in range(n)]


def _configs(n: int) -> Message:
    return describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(2, name) for name in _names(n)]
    )


def _alter(n: int) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(2, name, []) for name in _names(n)], True
    )


def _alter_old(n: int) -> Message:
    return alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(2, name, []) for name in _names(n)], True
    )


def _create_topics(n: int) -> Message:
    return create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic(name, 1, 1) for name in _names(n)], validate_only=True
    )


def _create_partitions(n: int) -> Message:
    return create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic(name, 3, None) for name in _names(n)], 1000, True
    )


def _elect(n: int) -> Message:
    return elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("t", list(range(n)))])


def _move(n: int) -> Message:
    rows = [alter_partition_reassignments.ReassignablePartition(i, [1]) for i in range(n)]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        1000, True, [alter_partition_reassignments.ReassignableTopic("t", rows)]
    )


def _moves(n: int) -> Message:
    topics = [list_partition_reassignments.ListPartitionReassignmentsTopics("t", list(range(n)))]
    return list_partition_reassignments.ListPartitionReassignmentsRequest(1000, topics)


def _delete_records(n: int) -> Message:
    parts = [delete_records.DeleteRecordsPartition(i, 5) for i in range(n)]
    return delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic("t", parts)])


def _offset_delete(n: int) -> Message:
    parts = [offset_delete.OffsetDeleteRequestPartition(i) for i in range(n)]
    return offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic("t", parts)])


def _leave(n: int) -> Message:
    return leave_group.LeaveGroupRequest("g", "", [leave_group.MemberIdentity(name) for name in _names(n)])


def _quorum(n: int) -> Message:
    part = describe_quorum.DescribeQuorumRequestPartitionData(0)
    return describe_quorum.DescribeQuorumRequest([describe_quorum.DescribeQuorumRequestTopicData("", [part])] * n)


def _features(n: int) -> Message:
    return update_features.UpdateFeaturesRequest(
        1000, [update_features.FeatureUpdateKey(name, 0, upgrade_type=1) for name in _names(n)]
    )


def _join(n: int) -> Message:
    protocols = [join_group.JoinGroupRequestProtocol(name, b"x") for name in _names(n)]
    return join_group.JoinGroupRequest("g", 10_000, 10_000, "", "", "consumer", protocols)


K = ApiKey
LARGE_REQUESTS = {
    "Metadata": LargeRequest(K.METADATA, 12, _metadata),
    "Metadata, one name": LargeRequest(K.METADATA, 12, _single_name),
    "Fetch": LargeRequest(K.FETCH, 12, _fetch),
    "Fetch, topics": LargeRequest(K.FETCH, 12, _fetch_topics),
    "Produce": LargeRequest(K.PRODUCE, 11, _produce),
    "ListOffsets": LargeRequest(K.LIST_OFFSETS, 7, _list_offsets),
    "OffsetCommit": LargeRequest(K.OFFSET_COMMIT, 8, _offset_commit),
    "OffsetFetch": LargeRequest(K.OFFSET_FETCH, 8, _offset_fetch),
    "OffsetDelete": LargeRequest(K.OFFSET_DELETE, 0, _offset_delete),
    "OffsetForLeaderEpoch": LargeRequest(K.OFFSET_FOR_LEADER_EPOCH, 4, _epochs),
    "FindCoordinator": LargeRequest(
        K.FIND_COORDINATOR, 6, lambda n: find_coordinator.FindCoordinatorRequest(coordinator_keys=_names(n))
    ),
    "DescribeGroups": LargeRequest(K.DESCRIBE_GROUPS, 5, lambda n: describe_groups.DescribeGroupsRequest(_names(n))),
    "DeleteGroups": LargeRequest(K.DELETE_GROUPS, 2, lambda n: dgr.DeleteGroupsRequest(_names(n))),
    "JoinGroup": LargeRequest(K.JOIN_GROUP, 5, _join),
    "LeaveGroup": LargeRequest(K.LEAVE_GROUP, 5, _leave),
    "CreateTopics": LargeRequest(K.CREATE_TOPICS, 7, _create_topics),
    "CreatePartitions": LargeRequest(K.CREATE_PARTITIONS, 3, _create_partitions),
    "ElectLeaders": LargeRequest(K.ELECT_LEADERS, 2, _elect),
    "AlterPartitionReassignments": LargeRequest(K.ALTER_PARTITION_REASSIGNMENTS, 1, _move),
    "ListPartitionReassignments": LargeRequest(K.LIST_PARTITION_REASSIGNMENTS, 0, _moves),
    "DeleteTopics": LargeRequest(
        K.DELETE_TOPICS, 5, lambda n: delete_topics.DeleteTopicsRequest(topic_names=_names(n))
    ),
    "DeleteRecords": LargeRequest(K.DELETE_RECORDS, 2, _delete_records),
    "DescribeConfigs": LargeRequest(K.DESCRIBE_CONFIGS, 4, _configs),
    "AlterConfigs": LargeRequest(K.ALTER_CONFIGS, 2, _alter_old),
    "IncrementalAlterConfigs": LargeRequest(K.INCREMENTAL_ALTER_CONFIGS, 1, _alter),
    "DescribeProducers": LargeRequest(
        K.DESCRIBE_PRODUCERS,
        0,
        lambda n: describe_producers.DescribeProducersRequest([describe_producers.TopicRequest("t", list(range(n)))]),
    ),
    "DescribeLogDirs": LargeRequest(
        K.DESCRIBE_LOG_DIRS, 4, lambda n: dld.DescribeLogDirsRequest([dld.DescribableLogDirTopic("t", list(range(n)))])
    ),
    "DescribeTopicPartitions": LargeRequest(
        K.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda n: dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest(name) for name in _names(n)]),
    ),
    "DescribeQuorum": LargeRequest(K.DESCRIBE_QUORUM, 2, _quorum),
    "ListGroups": LargeRequest(K.LIST_GROUPS, 5, lambda n: lsg.ListGroupsRequest(_names(n), _names(n))),
    "ListTransactions": LargeRequest(K.LIST_TRANSACTIONS, 2, lambda n: lst.ListTransactionsRequest(_names(n))),
    "UpdateFeatures": LargeRequest(K.UPDATE_FEATURES, 1, _features),
    **{
        f"PushTelemetry, {name}": LargeRequest(K.PUSH_TELEMETRY, 0, bomb)
        for name, bomb in telemetry_bombs.BOMBS.items()
    },
    "PushTelemetry, values": LargeRequest(K.PUSH_TELEMETRY, 0, telemetry_bombs.values),
    "PushTelemetry, names": LargeRequest(K.PUSH_TELEMETRY, 0, telemetry_bombs.names),
    "PushTelemetry, nothings": LargeRequest(K.PUSH_TELEMETRY, 0, telemetry_bombs.empty_metrics),
    "PushTelemetry, claims": LargeRequest(K.PUSH_TELEMETRY, 0, telemetry_bombs.overlong_field),
    "PushTelemetry, again": LargeRequest(K.PUSH_TELEMETRY, 0, telemetry_bombs.repeated_push, is_behind=True),
    "100 MB of keys": LargeRequest(
        K.FIND_COORDINATOR, 6, lambda n: find_coordinator.FindCoordinatorRequest(coordinator_keys=["k" * 500] * n)
    ),
    "5 MB of counts": LargeRequest(
        K.FIND_COORDINATOR, 6, lambda n: find_coordinator.FindCoordinatorRequest(coordinator_keys=[""] * (25 * n))
    ),
}


def _exact(sock: socket.socket, count: int) -> int:
    """Read and discard ``count`` bytes, and return ``count``; ConnectionError if the connection is closed before."""
    left = count
    while left:
        more = len(sock.recv(min(1 << 20, left)))
        if not more:
            raise ConnectionError
        left -= more
    return count


def _ask(sock: socket.socket, raw: bytes) -> int:
    """Send a request frame and discard the response; return its size in bytes.

    Raises:
        ConnectionError: the node has closed the connection.
    """
    sock.sendall(raw)
    size = sock.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        raise ConnectionError
    return _exact(sock, struct.unpack(">i", size)[0])


class ConcurrentClient:
    """Client in a thread that repeats ApiVersions during a ``with`` statement; `longest_s` is its longest wait."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_s = 0.0

    def _run(self) -> None:
        question = encode_request(K.API_VERSIONS, 0, 1, "other", api_versions.ApiVersionsRequest())
        with socket.create_connection(("127.0.0.1", self._port)) as sock:
            while not self._done.is_set():
                began = time.perf_counter()
                _ask(sock, question)
                self.longest_s = max(self.longest_s, time.perf_counter() - began)
                time.sleep(PROBE_INTERVAL_S)

    def __enter__(self) -> ConcurrentClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _memory(pid: int, field: str) -> int:
    """Return the size ``field`` of a process, such as ``VmRSS``, from ``/proc``, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def _warm(port: int, scene: LargeRequest) -> None:
    """Send a small request of the same kind, so that the node imports and compiles what the first use needs."""
    exists = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        _ask(sock, encode_request(K.METADATA, 12, 1, "hostile", exists))
        time.sleep(0.5)
        _ask(sock, encode_request(scene.key, scene.version, 1, "hostile", scene.make(2)))


def measure(name: str, scene: LargeRequest, elements: int, where: Path) -> float:
    """Send a request with ``elements`` elements to a new node and print a line of results.

    Returns:
        Growth of the node's memory divided by its bound (module docstring).
    """
    node = NodeChildProcess(where)
    try:
        _warm(node.port, scene)
        raw = encode_request(scene.key, scene.version, 1, "hostile", scene.make(elements))
        with ConcurrentClient(node.port) as other:
            time.sleep(0.3)
            node.query()
            Path(f"/proc/{node.pid}/clear_refs").write_text("5")
            before, began = _memory(node.pid, "VmRSS"), time.perf_counter()
            answer, outcome = 0, "answered"
            try:
                with socket.create_connection(("127.0.0.1", node.port)) as sock:
                    sock.settimeout(TIMEOUT_S)
                    if scene.is_behind:
                        _ask(sock, encode_request(scene.key, scene.version, 1, "hostile", scene.make(2)))
                    answer = _ask(sock, raw)
            except ConnectionError:
                outcome = "refused"
            took = time.perf_counter() - began
        peak = _memory(node.pid, "VmHWM") - before
        seen = node.query()
    finally:
        node.kill()
    share = peak / (3 * (len(raw) + answer) + FIXED_BYTES)
    sizes = f"{len(raw) / 1e6:10.2f} {answer / 1e6:9.2f} {peak / 1e6:8.1f} {share:8.2f}"
    times = f"{seen['computed'] * 1000:8.0f}{other.longest_s * 1000:8.0f} {took:7.2f}"
    print(f"{name:26}{sizes} {times}  {outcome}, {seen['who']}", flush=True)
    return share


def main() -> None:
    """Measure the given requests, or all, and print a line for each and the one with the largest share of the bound."""
    parser = argparse.ArgumentParser("bench.hostile")
    parser.add_argument("--elements", type=int, default=200_000)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(LARGE_REQUESTS)}")
    options = parser.parse_args()
    head = f"{'request MB':>10} {'answer MB':>9} {'peak MB':>8} {'of bound':>8} "
    head += f"{'held ms':>8}{'wait ms':>8} {'took s':>7}"
    print(f"{f'{options.elements} elements':26}{head}")
    shares = {}
    for name in options.names or LARGE_REQUESTS:
        with tempfile.TemporaryDirectory() as where:
            shares[name] = measure(name, LARGE_REQUESTS[name], options.elements, Path(where) / "data")
    worst = max(shares, key=lambda name: shares[name])
    print(f"worst: {worst}, {shares[worst]:.2f} of the bound")


if __name__ == "__main__":
    main()
