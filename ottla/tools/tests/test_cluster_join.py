"""Joining a cluster: discovery, and the settings of the new node."""

from __future__ import annotations

import random

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.env.memory_disk import MemoryDisk
from ottla.tools.cluster_join import DiscoveredCluster, check_node_id_unused, join_settings, parse_cluster
from ottla.tools.join_settings import CannotJoin, load_join_settings, save_join_settings
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import describe_cluster, describe_quorum

NOW = 100_000


def cluster(*brokers: int, error: int = 0) -> describe_cluster.DescribeClusterResponse:
    rows = [describe_cluster.DescribeClusterBroker(n, "h", 9090 + n) for n in brokers]
    return describe_cluster.DescribeClusterResponse(error_code=error, cluster_id="c", brokers=rows)


def quorum(last_fetch_ms: dict[int, int], host: str = "h", error: int = 0) -> describe_quorum.DescribeQuorumResponse:
    rows = [describe_quorum.ReplicaState(n, bytes(16), 9, at, at) for n, at in last_fetch_ms.items()]
    part = describe_quorum.DescribeQuorumResponsePartitionData(0, error, leader_id=1, current_voters=rows)
    nodes = [describe_quorum.Node(n, [describe_quorum.Listener("CONTROLLER", host, 19090 + n)]) for n in last_fetch_ms]
    return describe_quorum.DescribeQuorumResponse(
        topics=[describe_quorum.DescribeQuorumResponseTopicData("t", [part])], nodes=nodes
    )


def single_node_cluster(host: str = "10.0.0.1", seen_from: str = "10.0.0.2") -> DiscoveredCluster:
    return parse_cluster(cluster(1), quorum({1: NOW}, host), seen_from)


def test_join_settings_use_voters_and_join_until_enough_voters() -> None:
    joined = join_settings({"num.partitions": "3"}, 2, single_node_cluster(), 3)
    assert joined == {
        "num.partitions": "3",
        "node.id": "2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "10.0.0.1:19091",
        "controller.quorum.auto.join.enable": "true",
    }
    assert not NodeConfig(joined, node_id=2).is_standalone
    three = parse_cluster(cluster(1, 2, 3), quorum({3: NOW, 1: NOW, 2: NOW}, "::1"), "::1")
    joined = join_settings({}, 4, three, 3)
    assert "controller.quorum.auto.join.enable" not in joined
    assert joined["controller.quorum.bootstrap.servers"] == "[::1]:19091,[::1]:19092,[::1]:19093"
    assert "controller.quorum.auto.join.enable" in join_settings({}, 4, three, 5)
    assert "controller.quorum.auto.join.enable" not in join_settings({}, 3, three, 5), "already a voter"


def test_join_settings_of_voter_with_lost_disk_enable_auto_join() -> None:
    answer = quorum({1: NOW, 2: NOW, 3: NOW - 60_000})
    lost, new = bytes([3] * 16), bytes([4] * 16)
    answer.topics[0].partitions[0].current_voters[2].replica_directory_id = lost
    three = parse_cluster(cluster(1, 2), answer, "h")

    def joins(node_id: int, directory_id: bytes | None) -> bool:
        return "controller.quorum.auto.join.enable" in join_settings({}, node_id, three, 3, directory_id)

    assert joins(3, None), "new directory"
    assert joins(3, new), "directory of a failed join"
    assert not joins(3, lost), "directory of the voter is present"
    assert not joins(2, None), "directories of static voters are unknown"
    assert not joins(4, None), "enough voters"


def test_join_settings_keep_auto_join_of_the_user() -> None:
    values = {"controller.quorum.auto.join.enable": "false"}
    assert join_settings(values, 2, single_node_cluster(), 3)["controller.quorum.auto.join.enable"] == "false"


def test_join_settings_unreachable_controllers_raise_cannot_join() -> None:
    with pytest.raises(CannotJoin, match="localhost:19091, which is not reachable from this machine"):
        join_settings({}, 2, single_node_cluster("localhost"), 3)
    assert join_settings({}, 2, single_node_cluster("localhost", "127.0.0.1"), 3)
    with pytest.raises(CannotJoin, match="no listener PEERS; they have CONTROLLER"):
        join_settings({"controller.listener.names": "PEERS"}, 2, single_node_cluster(), 3)


def test_check_node_id_unused_accepts_ids_of_lost_nodes_only() -> None:
    seen = parse_cluster(cluster(1), quorum({1: NOW, 2: NOW - 60_000, 3: NOW - 100}), "h")
    check_node_id_unused(2, seen)
    check_node_id_unused(4, seen)
    with pytest.raises(CannotJoin, match="node id 1 belongs to the node at h:9091"):
        check_node_id_unused(1, seen)
    with pytest.raises(CannotJoin, match="node id 3 belongs to a controller that is alive"):
        check_node_id_unused(3, seen)


@pytest.mark.parametrize("answers", [(cluster(error=31), quorum({1: 0})), (cluster(1), quorum({1: 0}, error=6))])
def test_parse_cluster_error_response_raises_protocol_error(
    answers: tuple[describe_cluster.DescribeClusterResponse, describe_quorum.DescribeQuorumResponse],
) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_cluster(*answers, "h")
    assert caught.value.code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_load_join_settings_uses_saved_settings_unless_configured() -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs("/d")
    values = {"num.partitions": "3"}
    assert load_join_settings(disk, "/d", values) is values
    joined = join_settings(values, 2, single_node_cluster(), 3)
    save_join_settings(disk, "/d", joined, 0)
    again = load_join_settings(disk, "/d", values)
    assert again == {
        "num.partitions": "3",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "10.0.0.1:19091",
    }
    for own in ({"controller.quorum.bootstrap.servers": "x:1"}, {"controller.quorum.voters": "1@x:1"}):
        assert load_join_settings(disk, "/d", own) is own, "configured settings take precedence"
