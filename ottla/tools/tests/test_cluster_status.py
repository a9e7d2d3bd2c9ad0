"""Cluster status: one row per node."""

from __future__ import annotations

from ottla.tools.cluster_status import build_status_table
from ottla.wire.messages import describe_cluster, describe_quorum, metadata


def partition(leader: int, replicas: list[int], in_sync: list[int]) -> metadata.MetadataResponsePartition:
    return metadata.MetadataResponsePartition(leader_id=leader, replica_nodes=replicas, isr_nodes=in_sync)


def test_cluster_status_has_row_for_every_known_node() -> None:
    cluster = describe_cluster.DescribeClusterResponse(
        brokers=[
            describe_cluster.DescribeClusterBroker(1, "a", 9092),
            describe_cluster.DescribeClusterBroker(2, "b", 9092, "r", True),
        ]
    )
    topics = metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponseTopic(partitions=[partition(1, [1, 2], [1]), partition(1, [2, 1], [1])]),
            metadata.MetadataResponseTopic(partitions=[partition(-1, [2], [2])]),
        ]
    )
    part = describe_quorum.DescribeQuorumResponsePartitionData(
        0,
        leader_id=1,
        current_voters=[
            describe_quorum.ReplicaState(1, log_end_offset=100),
            describe_quorum.ReplicaState(3, log_end_offset=90),
        ],
        observers=[describe_quorum.ReplicaState(2, log_end_offset=-1)],
    )
    quorum = describe_quorum.DescribeQuorumResponse(
        topics=[describe_quorum.DescribeQuorumResponseTopicData("t", [part])]
    )
    rows = [tuple(row.values()) for row in build_status_table(cluster, topics, quorum)]
    assert rows == [
        (1, "a:9092", "-", "alive", "leader", 0, 2, 2, 0),
        (2, "b:9092", "r", "fenced", "observer", 101, 0, 3, 2),
        (3, "-", "-", "-", "voter", 10, 0, 0, 0),
    ]
