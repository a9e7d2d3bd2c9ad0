"""``ottla cluster remove`` with an in-memory controller."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from typing import Any

import pytest

from ottla.cli.cluster_admin import reassignment, removal
from ottla.cli.errors import CommandFailed
from ottla.cli.tests.test_reassignment import FakeReassigningCluster
from ottla.controller.tests.test_controller_state_machine import send_heartbeat
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.runtime import blocking_env
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    describe_cluster,
    describe_configs,
    describe_quorum,
    incremental_alter_configs,
    remove_raft_voter,
)

CLUSTER_ID = "QzLqyD5bR0CqEEbwMMgE1g"


class FakeClusterWithQuorum(FakeReassigningCluster):
    """Cluster with all brokers as voters; a stopped node disappears after two status requests."""

    def __init__(self, brokers: int, *replicas: list[int], stops: int | None = None) -> None:
        super().__init__(brokers, *replicas)
        self.voters = list(range(1, brokers + 1))
        self.away: list[int] = []
        self.requests: list[str] = []
        self.stops = stops
        self.looks = 0
        self.busy = 1
        self.joins = False

    def avoid_brokers(self, node_ids: Collection[int]) -> None:
        self.away += node_ids

    async def broker(self, node_id: int) -> Any:
        return self

    async def metadata(self, topics: list[str] | None) -> Any:
        answer = await super().metadata(topics)
        for topic in answer.topics:
            for p in topic.partitions:
                partition = self.machine.image.topics[topic.name].partitions[p.partition_index]
                p.leader_id, p.isr_nodes = partition.leader, list(partition.isr)
        return answer

    async def call(self, request: Any) -> Any:
        self.requests.append(type(request).__name__)
        image = self.machine.image
        match request:
            case describe_cluster.DescribeClusterRequest():
                assert request.include_fenced_brokers
                self.looks += 1
                if self.stops is not None and self.looks == self.stops:
                    send_heartbeat(self.machine, 3, want_fence=True)
                rows = [
                    describe_cluster.DescribeClusterBroker(i, "h", 1, b.rack, b.fenced)
                    for i, b in image.brokers.items()
                ]
                return describe_cluster.DescribeClusterResponse(cluster_id=CLUSTER_ID, brokers=rows)
            case describe_quorum.DescribeQuorumRequest():
                voters = [describe_quorum.ReplicaState(i, bytes([i]) * 16, 0, 5, 5) for i in self.voters]
                part = describe_quorum.DescribeQuorumResponsePartitionData(leader_id=1, current_voters=voters)
                return describe_quorum.DescribeQuorumResponse(
                    topics=[describe_quorum.DescribeQuorumResponseTopicData(METADATA_TOPIC, [part])]
                )
            case describe_configs.DescribeConfigsRequest():
                row = describe_configs.DescribeConfigsResourceResult(removal.AUTO_JOIN, str(self.joins).lower())
                return describe_configs.DescribeConfigsResponse(
                    results=[describe_configs.DescribeConfigsResult(configs=[row])]
                )
            case remove_raft_voter.RemoveRaftVoterRequest():
                assert (request.cluster_id, request.voter_directory_id) == (CLUSTER_ID, bytes([request.voter_id]) * 16)
                if self.busy:
                    self.busy -= 1
                    return remove_raft_voter.RemoveRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
                self.voters.remove(request.voter_id)
                return remove_raft_voter.RemoveRaftVoterResponse()
        return await super().call(request)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(self: Any, seconds: float) -> None:
        assert seconds == reassignment.POLL_INTERVAL_S

    monkeypatch.setattr(blocking_env.BlockingEnv, "sleep", sleep)


def run(cluster: FakeClusterWithQuorum, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    parser = argparse.ArgumentParser()
    removal.add_verb(parser.add_subparsers(dest="verb"))
    options = parser.parse_args(["remove", *words, "-o", "json"])
    blocking_env.run_blocking(removal.remove_nodes(cluster, options))
    output = capsys.readouterr()
    return json.loads(output.out), output.err


def test_remove_node_drains_waits_for_stop_and_unregisters(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(4, [3, 1], [1, 2], [2, 3], stops=5)
    rows, messages = run(cluster, capsys, "3")
    assert rows == [{"removed": 3}]
    assert messages == "node 3 has no replicas left: stop it now\n", "printed once"
    assert cluster.voters == [1, 2, 4]
    assert sorted(cluster.machine.image.brokers) == [1, 2, 4]
    assert not any(3 in replicas for replicas in cluster.sets())
    assert cluster.away == [3], "no request during the shutdown"
    stopped = cluster.requests.index("RemoveRaftVoterRequest")
    assert "AlterPartitionReassignmentsRequest" in cluster.requests[:stopped]
    assert cluster.requests[stopped:] == ["RemoveRaftVoterRequest"] * 2 + ["UnregisterBrokerRequest"]


def test_remove_dry_run_prints_steps_without_changes(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(4, [3, 1])
    rows, _ = run(cluster, capsys, "3", "--dry-run")
    assert rows[0] == {"step": "move", "what": "t:0", "from": [3, 1], "to": [2, 1]}
    assert [row["step"] for row in rows[1:]] == ["stop", "remove voter", "unregister"]
    assert cluster.sets() == [(3, 1)]
    assert cluster.voters == [1, 2, 3, 4]


def test_remove_without_other_broker_fails_unless_fewer_copies(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(3, [3, 1, 2], [2, 3, 1], stops=4)
    with pytest.raises(CommandFailed, match=r"2 partitions have no other broker to move to: t:0, t:1 \(--fewer-copies"):
        run(cluster, capsys, "3")
    assert cluster.sets() == [(3, 1, 2), (2, 3, 1)], "no reassignment was started"
    run(cluster, capsys, "3", "--fewer-copies")
    assert cluster.sets() == [(1, 2), (2, 1)]
    alone = FakeClusterWithQuorum(1, [1])
    alone.voters = [2]
    with pytest.raises(CommandFailed, match=r"1 partitions have no other broker to move to: t:0$"):
        run(alone, capsys, "1", "--fewer-copies")


def test_remove_dead_nodes_together_succeeds_where_single_removal_fails(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(3, [1, 2, 3], [2, 3, 1])
    cluster.voters = [1]
    for dead in (2, 3):
        send_heartbeat(cluster.machine, dead, want_fence=True)
    with pytest.raises(CommandFailed, match="2 partitions have remaining replicas that are not in sync: t:0, t:1;"):
        run(cluster, capsys, "3", "--fewer-copies")
    rows, messages = run(cluster, capsys, "2", "3", "--fewer-copies")
    assert (rows, messages) == ([{"removed": 2}, {"removed": 3}], "")
    assert cluster.sets() == [(1,), (1,)]
    assert sorted(cluster.machine.image.brokers) == [1]


def test_remove_node_not_stopped_in_time_fails(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(4, [3, 1])
    with pytest.raises(CommandFailed, match="node 3 is still running: stop it and retry"):
        run(cluster, capsys, "3", "--wait", "0")
    assert cluster.voters == [1, 2, 3, 4]


def test_remove_one_of_two_voters_removes_its_vote_before_stop(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(3, [3, 1], stops=5)
    cluster.voters = [1, 3]
    cluster.joins = True
    with pytest.raises(CommandFailed, match="rejoins as voter"):
        run(cluster, capsys, "3")
    cluster.joins, cluster.looks = False, 0
    run(cluster, capsys, "3")
    assert cluster.voters == [1]
    assert cluster.requests.count("RemoveRaftVoterRequest") == 2
    assert "DescribeClusterRequest" in cluster.requests[cluster.requests.index("RemoveRaftVoterRequest") + 2 :]


def test_remove_throttle_is_set_during_moves_and_removed_after(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeClusterWithQuorum(4, [3, 1], stops=4)
    seen: list[Any] = []
    real = cluster.call

    async def call(request: Any) -> Any:
        if isinstance(request, incremental_alter_configs.IncrementalAlterConfigsRequest):
            seen.append([(r.resource_name, c.config_operation) for r in request.resources for c in r.configs])
        return await real(request)

    cluster.call = call  # type: ignore[method-assign]
    run(cluster, capsys, "3", "--throttle", "5000")
    names = [x for name in ("t", "1", "2", "3") for x in (name, name)]
    rows = [[(name, kind)] * 2 for kind in (0, 1) for name in names[::2]]
    assert seen == rows, "throttle is set per broker"
    configs = cluster.machine.image
    assert not configs.config(2, "t").get("leader.replication.throttled.replicas")
    assert not configs.config(4, "3").get("leader.replication.throttled.rate")
