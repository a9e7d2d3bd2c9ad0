"""Kafka's administrative tools against three nodes of Ottla, at brokers and at controllers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from compat_tests.cluster.test_three_nodes import wait_for
from compat_tests.support.processes import java_tool


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3, data_dir=str(tmp_path_factory.mktemp("tools") / "c")) as cluster:
        yield cluster


@pytest.fixture
def at(cluster: ottla.Cluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap_servers


@pytest.fixture
def at_controller(cluster: ottla.Cluster) -> tuple[str, str]:
    return "--bootstrap-controller", f"127.0.0.1:{cluster.nodes[1].controller_port}"


def leaders(at: tuple[str, str], topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Return (leader, replicas, ISR) of each partition as kafka-topics describes it; empty for an unknown topic."""
    try:
        text = java_tool("TopicCommand", *at, "--describe", "--topic", topic)
    except AssertionError:
        return []
    rows = re.findall(r"Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", text)
    return [
        (int(leader), *([int(x) for x in part.split(",")] for part in (replicas, isr)))  # type: ignore[misc]
        for leader, replicas, isr in rows
    ]


def test_kafka_tools_create_reassign_and_elect_leaders_of_topic(at: tuple[str, str], tmp_path: Path) -> None:
    java_tool("TopicCommand", *at, "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "2")
    wait_for(lambda: [len(replicas) for _, replicas, _ in leaders(at, "t")] == [2, 2, 2])
    wanted = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    rows = [{"topic": "t", "partition": number, "replicas": replicas} for number, replicas in enumerate(wanted)]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    move = ["reassign.ReassignPartitionsCommand", *at, "--reassignment-json-file", str(plan)]
    assert "Successfully started partition reassignments for t-0,t-1,t-2" in java_tool(*move, "--execute")
    wait_for(lambda: java_tool(*move, "--verify").count("is completed") == 3)
    assert "No partition reassignments found" in java_tool("reassign.ReassignPartitionsCommand", *at, "--list")
    java_tool("LeaderElectionCommand", *at, "--election-type", "preferred", "--all-topic-partitions")
    wait_for(lambda: [(leader, replicas) for leader, replicas, _ in leaders(at, "t")] == [(r[0], r) for r in wanted])
    wait_for(lambda: not java_tool("TopicCommand", *at, "--describe", "--under-replicated-partitions").strip())
    sizes = java_tool("LogDirsCommand", *at, "--describe", "--topic-list", "t")
    result = json.loads(next(line for line in sizes.splitlines() if line.startswith("{")))
    assert [(x["broker"], len(x["logDirs"][0]["partitions"])) for x in result["brokers"]] == [(1, 3), (2, 3), (3, 3)]


def endpoints(at: tuple[str, str]) -> list[tuple[int, int, str]]:
    """Return (node, port, kind) of each node in the answer of a node."""
    lines = java_tool("ClusterTool", "list-endpoints", *at).strip().splitlines()[1:]
    return [(int(x.split()[0]), int(x.split()[2]), x.split()[-1]) for x in lines]


def test_kafka_tools_at_brokers_and_controllers_list_cluster_nodes(
    cluster: ottla.Cluster, at: tuple[str, str], at_controller: tuple[str, str]
) -> None:
    ids = {java_tool("ClusterTool", "cluster-id", *where).strip() for where in (at, at_controller)}
    assert len(ids) == 1
    for where, ports, kind in (
        (at, [n.port for n in cluster.nodes], "broker"),
        (at_controller, [n.controller_port for n in cluster.nodes], "controller"),
    ):
        wanted = [(i, port, kind) for i, port in enumerate(ports, 1)]
        wait_for(lambda where=where, wanted=wanted: endpoints(where) == wanted)  # type: ignore[misc]
        features = java_tool("FeatureCommand", *where, "describe")
        assert re.search(r"metadata.version .*FinalizedVersionLevel: 4.3-IV0", features)
        status = java_tool("MetadataQuorumCommand", *where, "describe", "--status")
        assert status.count("CONTROLLER://127.0.0.1:") == 3
    entity = ["--entity-type", "brokers", "--entity-name", "2", "--describe"]
    java_tool("kafka.admin.ConfigCommand", *at_controller, *entity)  # fails without a response


def roles(at: tuple[str, str]) -> dict[int, str]:
    """Return the role of each node in the quorum."""
    text = java_tool("MetadataQuorumCommand", *at, "describe", "--replication")
    return {int(line.split()[0]): line.split()[-1] for line in text.strip().splitlines()[1:]}


def test_metadata_quorum_tool_removes_and_adds_controller(
    cluster: ottla.Cluster, at: tuple[str, str], tmp_path: Path
) -> None:
    wait_for(lambda: sorted(roles(at).values()) == ["Follower", "Follower", "Leader"])
    node = cluster.nodes[2]
    meta = (Path(node.data_dir) / "meta.properties").read_text()
    directory = next(line.partition("=")[2] for line in meta.splitlines() if line.startswith("directory.id="))
    quorum = ["MetadataQuorumCommand", *at]
    out = ["remove-controller", "--controller-id", "3", "--controller-directory-id", directory]
    assert "Removed" in java_tool(*quorum, *out)
    wait_for(lambda: roles(at).get(3) == "Observer")
    settings = tmp_path / "3.properties"
    settings.write_text(
        f"process.roles=broker,controller\nnode.id=3\nlog.dirs={node.data_dir}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{cluster.nodes[0].controller_port}\n"
    )
    assert "Added" in java_tool("MetadataQuorumCommand", *at, "--command-config", str(settings), "add-controller")
    wait_for(lambda: roles(at).get(3) in ("Follower", "Leader"))
