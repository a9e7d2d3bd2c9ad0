"""``ottla cluster elect | reassign | drain | rebalance`` with an in-memory controller."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from ottla.cli.cluster_admin import reassignment
from ottla.cli.errors import CommandFailed
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.partitions.reassignment_plan import PlannedReassignment
from ottla.controller.tests.test_controller_state_machine import create, machine, send_heartbeat, submit
from ottla.runtime import blocking_env
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    alter_partition,
    alter_partition_reassignments,
    create_topics,
    incremental_alter_configs,
    list_partition_reassignments,
)
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class FakeReassigningCluster:
    """Fake cluster client: replicas catch up each time the reassignments are listed."""

    def __init__(self, brokers: int, *replicas: list[int]) -> None:
        self.machine: ControllerStateMachine = machine(brokers)
        rows = [create_topics.CreatableReplicaAssignment(number, r) for number, r in enumerate(replicas)]
        create(self.machine, "t", -1, -1, assignments=rows)
        self.at_once: list[int] = []
        self.still = False

    async def metadata(self, topics: list[str] | None) -> Any:
        assert topics is None
        image = self.machine.image
        return MetadataResponse(
            brokers=[MetadataResponseBroker(i, "h", 1, b.rack) for i, b in image.brokers.items() if not b.fenced],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(partition_index=n, replica_nodes=list(p.replicas))
                        for n, p in topic.partitions.items()
                    ],
                )
                for name, topic in image.topics.items()
            ],
        )

    async def broker(self, node_id: int) -> Any:
        return self

    async def call(self, request: Any) -> Any:
        if isinstance(request, alter_partition_reassignments.AlterPartitionReassignmentsRequest):
            self.at_once.append(sum(len(t.partitions) for t in request.topics))
        answer = submit(
            self.machine,
            request,
            2 if not isinstance(request, alter_partition_reassignments.AlterPartitionReassignmentsRequest) else 1,
        )
        if isinstance(request, list_partition_reassignments.ListPartitionReassignmentsRequest) and not self.still:
            self.catch_up()
        return answer

    def catch_up(self) -> None:
        for topic in self.machine.image.topics.values():
            for number, p in topic.partitions.items():
                if p.adding or p.removing:
                    isr = [alter_partition.BrokerState(i, -1) for i in p.replicas]
                    row = alter_partition.AlterPartitionRequestPartitionData(
                        number, p.leader_epoch, [], isr, 0, p.partition_epoch
                    )
                    rows = [alter_partition.AlterPartitionRequestTopicData(topic.id, [row])]
                    epoch = self.machine.image.brokers[p.leader].broker_epoch
                    submit(self.machine, alter_partition.AlterPartitionRequest(p.leader, epoch, rows), 3)

    def sets(self) -> list[tuple[int, ...]]:
        return [p.replicas for p in self.machine.image.topics["t"].partitions.values()]

    def leaders(self) -> list[int]:
        return [p.leader for p in self.machine.image.topics["t"].partitions.values()]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(self: Any, seconds: float) -> None:
        assert seconds == reassignment.POLL_INTERVAL_S

    monkeypatch.setattr(blocking_env.BlockingEnv, "sleep", sleep)


def run_verb(cluster: FakeReassigningCluster, *words: str) -> None:
    """Run a command."""
    parser = argparse.ArgumentParser()
    reassignment.add_verbs(parser.add_subparsers(dest="verb"))
    options = parser.parse_args([*words, "-o", "json"])
    work = reassignment.VERBS[options.verb](cluster, options)
    blocking_env.run_blocking(work)  # type: ignore[arg-type]


def run(cluster: FakeReassigningCluster, capsys: pytest.CaptureFixture[str], *words: str, why: str = "") -> Any:
    """Return the output of a command as JSON; ``why``: expected error message."""
    with pytest.raises(CommandFailed, match=why) if why else nullcontext():
        run_verb(cluster, *words)
    return json.loads(capsys.readouterr().out)


def test_drain_moves_limited_number_of_partitions_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(4, [1, 2], [2, 1], [3, 1], [2, 3])
    assert run(cluster, capsys, "drain", "1", "--dry-run") == [
        {"topic": "t", "partition": 0, "from": [1, 2], "to": [4, 2]},
        {"topic": "t", "partition": 1, "from": [2, 1], "to": [2, 4]},
        {"topic": "t", "partition": 2, "from": [3, 1], "to": [3, 4]},
    ]
    assert cluster.at_once == [], "dry run"
    assert run(cluster, capsys, "drain", "1", "--at-once", "2") == [{"moved": 3}]
    assert cluster.sets() == [(4, 2), (2, 4), (3, 4), (2, 3)]
    assert cluster.leaders() == [4, 2, 3, 2]
    assert cluster.at_once == [2, 1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_drain_prints_progress_only_on_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    cluster = FakeReassigningCluster(4, [1, 2], [2, 1], [3, 1], [2, 3])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    parser = argparse.ArgumentParser()
    reassignment.add_verbs(parser.add_subparsers(dest="verb"))
    options = parser.parse_args(["drain", "1", "--at-once", "2", "-o", "json"])
    blocking_env.run_blocking(reassignment.VERBS[options.verb](cluster, options))  # type: ignore[arg-type]
    output = capfd.readouterr()
    assert json.loads(output.out) == [{"moved": 3}], "no progress on standard output"
    lines = output.err.split("\r")[1:]
    done = [int(line.rpartition("] ")[2].split()[0]) for line in lines]
    assert done == sorted(done), "progress never decreases"
    assert len({*done}) > 1 if is_terminal else not done
    assert lines[-1:] == ([f"[{'#' * 40}] 3 of 3 partitions\n"] if is_terminal else [])


def test_drain_moves_other_partitions_before_reporting_stuck_ones(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(3, [1, 2], [1, 2])
    run(cluster, capsys, "reassign", "t:1=1,2,3")
    with pytest.raises(CommandFailed, match="1 partitions have no other broker to move to: t:1"):
        run(cluster, capsys, "drain", "1")
    assert cluster.sets() == [(3, 2), (1, 2, 3)]


def test_rebalance_balances_replicas_and_preferred_leaders(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(3, [1, 2], [1, 2], [1, 2])
    assert run(cluster, capsys, "rebalance")[0]["moved"] >= 2
    assert sorted(i for replicas in cluster.sets() for i in replicas) == [1, 1, 2, 2, 3, 3]
    assert sorted(cluster.leaders()) == [1, 2, 3]
    assert cluster.leaders() == [replicas[0] for replicas in cluster.sets()]
    assert run(cluster, capsys, "rebalance") == [{"moved": 0}]


def test_rebalance_and_drain_skip_active_reassignments(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(2, [1], [1])
    cluster.still = True
    run(cluster, capsys, "reassign", "t:0=2")
    assert run(cluster, capsys, "rebalance", "--dry-run") == []
    assert run(cluster, capsys, "drain", "1", "--dry-run") == [{"topic": "t", "partition": 1, "from": [1], "to": [2]}]


def test_reassign_starts_lists_and_cancels_reassignments(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(3, [1, 2], [1, 2])
    cluster.still = True
    row = {"topic": "t", "partition": 0, "replicas": [1, 3, 2], "adding": [3], "removing": [2]}
    assert run(cluster, capsys, "reassign", "t:0=1,3") == [row]
    assert run(cluster, capsys, "reassign") == [row]
    assert run(cluster, capsys, "reassign", "--cancel", "t:0") == []
    assert cluster.sets() == [(1, 2), (1, 2)]
    with pytest.raises(CommandFailed, match="t:0: No reassignment in progress"):
        run(cluster, capsys, "reassign", "--cancel", "t:0")


def test_elect_prints_failed_elections(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeReassigningCluster(2, [1, 2], [1, 2], [2, 1])
    send_heartbeat(cluster.machine, 1, want_fence=True)
    send_heartbeat(cluster.machine, 1)
    assert cluster.leaders() == [2, 2, 2]
    failed = [{"topic": "t", "partition": n, "result": "preferred_leader_not_available"} for n in (0, 1)]
    why = "2 of 2 elections failed: t:0: preferred_leader_not_available"
    assert run(cluster, capsys, "elect", why=why) == failed, "preferred replica is not in sync"
    assert run(cluster, capsys, "elect", "t:1", why="1 of 1 elections failed") == failed[1:]
    assert run(cluster, capsys, "elect", "t:2") == []
    assert run(cluster, capsys, "elect", "--unclean", "t:0") == [], "partition has a leader"
    with pytest.raises(CommandFailed, match=r"partition 3 of topic t does not exist \(it has 0 to 2\)"):
        run_verb(cluster, "elect", "t:3")
    with pytest.raises(CommandFailed, match="topic u does not exist"):
        run_verb(cluster, "reassign", "--cancel", "u:0")


@pytest.mark.parametrize("text", ["t", "t:", ":1", "t:x", "t:1=", "t:1=a", "t=1", "t:1=1,"])
def test_parse_reassignment_malformed_raises_command_failed(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"TOPIC:PARTITION.* expected"):
        reassignment.parse_reassignment(text)


def test_parse_reassignment_accepts_topic_with_colon() -> None:
    assert reassignment.parse_reassignment("a:b:3=1,2") == PlannedReassignment(("a:b", 3), (1, 2))


def test_drain_with_a_refused_throttle_moves_nothing_and_removes_the_rest() -> None:
    cluster = FakeReassigningCluster(3, [1, 2])
    real = cluster.call
    sent: list[tuple[str, int]] = []

    async def call(request: Any) -> Any:
        if isinstance(request, incremental_alter_configs.IncrementalAlterConfigsRequest):
            sent.extend((row.resource_name, row.configs[0].config_operation) for row in request.resources)
            if request.resources[0].resource_name == "2":
                row = incremental_alter_configs.AlterConfigsResourceResponse(
                    ErrorCode.POLICY_VIOLATION, "too slow", 4, "2"
                )
                return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[row])
        return await real(request)

    cluster.call = call  # type: ignore[method-assign]
    with pytest.raises(CommandFailed, match="too slow"):
        run_verb(cluster, "drain", "1", "--throttle", "5000")
    assert cluster.sets() == [(1, 2)]
    assert sent == [("t", 0), ("1", 0), ("2", 0), ("3", 0), ("t", 1), ("1", 1), ("3", 1)]
    image = cluster.machine.image
    assert not image.config(2, "t").get("leader.replication.throttled.replicas")
    assert not image.config(4, "1").get("leader.replication.throttled.rate")
