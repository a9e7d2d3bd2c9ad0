"""Replicas and leaders that move between real processes while a stock client writes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

import ottla
from compat_tests.cluster.test_three_nodes import WITHIN_S, make_topic, read, verify_written, wait_for
from compat_tests.support.number_writer import NumberWriter
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.real_env import RealEnv
from ottla.wire.messages import (
    alter_partition_reassignments,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)

TOPIC, BROKER, SET = 2, 4, 0
RATE = 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3) as out:
        yield out


def ask(cluster: ottla.Cluster, request: Any, node: int = 1) -> Any:
    """Send one request as a client does."""

    async def main() -> Any:
        client = ClusterClient(RealEnv(), cluster.node(node).bootstrap_servers)
        try:
            return await client.call(request)
        finally:
            client.close()

    return trio.run(main)


def move(cluster: ottla.Cluster, topic: str, replicas: dict[int, list[int]]) -> None:
    """Reassign partitions to these replicas."""
    rows = [alter_partition_reassignments.ReassignablePartition(number, to) for number, to in replicas.items()]
    answer = ask(
        cluster,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            60_000, True, [alter_partition_reassignments.ReassignableTopic(topic, rows)]
        ),
    )
    assert (answer.error_code, [p.error_code for t in answer.responses for p in t.partitions]) == (0, [0] * len(rows))


def has_moved(cluster: ottla.Cluster) -> bool:
    return not ask(cluster, list_partition_reassignments.ListPartitionReassignmentsRequest(10_000, None)).topics


def copies(cluster: ottla.Cluster, name: str) -> list[int]:
    """Return the nodes that have a partition's directory."""
    return [node.id for node in cluster.nodes if os.path.isdir(f"{node.data_dir}/{name}")]


def set_all(cluster: ottla.Cluster, rows: dict[tuple[int, str], dict[str, str]]) -> None:
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            kind, name, [incremental_alter_configs.AlterableConfig(key, SET, value) for key, value in values.items()]
        )
        for (kind, name), values in rows.items()
    ]
    for resource in resources:  # a broker refuses the settings of another broker
        node = int(resource.resource_name) if resource.resource_type == BROKER else 1
        answer = ask(cluster, incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), node)
        assert [x.error_code for x in answer.responses] == [0]


def test_reassignment_under_load_moves_replicas_and_keeps_records(cluster: ottla.Cluster) -> None:
    make_topic(cluster.bootstrap_servers, "moving", 1)
    with NumberWriter(cluster.bootstrap_servers, "moving") as writer:
        for members in ([1, 2], [3, 2], [3, 1], [2, 1, 3]):
            move(cluster, "moving", {0: members})
            wait_for(lambda: has_moved(cluster))
            wait_for(lambda members=members: copies(cluster, "moving-0") == sorted(members))
            writer.wait_for_progress()
    verify_written(cluster.bootstrap_servers, "moving", writer)


def test_reassignment_with_replication_throttle_keeps_to_the_rate(cluster: ottla.Cluster) -> None:
    make_topic(cluster.bootstrap_servers, "throttled", 1)
    move(cluster, "throttled", {0: [1, 2]})
    wait_for(lambda: copies(cluster, "throttled-0") == [1, 2])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(50):
        producer.produce("throttled", str(number).ljust(RATE // 10))
    assert producer.flush(WITHIN_S) == 0
    sides = ("leader", "follower")
    listed = {f"{side}.replication.throttled.replicas": "*" for side in sides}
    rates = {f"{side}.replication.throttled.rate": str(RATE) for side in sides}
    set_all(cluster, {(TOPIC, "throttled"): listed, **{(BROKER, str(node.id)): rates for node in cluster.nodes}})
    began = time.monotonic()
    move(cluster, "throttled", {0: [1, 3]})
    wait_for(lambda: has_moved(cluster))
    assert 2.5 < time.monotonic() - began < WITHIN_S
    set_all(cluster, {(BROKER, str(node.id)): dict.fromkeys(rates, "9" * 12) for node in cluster.nodes})
    assert read(cluster.bootstrap_servers, "throttled", 50) == list(range(50))


def test_leader_elections_under_load_keep_order_of_each_key(cluster: ottla.Cluster) -> None:
    make_topic(cluster.bootstrap_servers, "elected", 3)
    turns = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    elected = 0
    with NumberWriter(cluster.bootstrap_servers, "elected") as writer:
        for turn in range(1, 9):
            move(cluster, "elected", {number: turns[(number + turn) % 3] for number in range(3)})
            wanted = elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("elected", [0, 1, 2])], 10_000)
            answer = ask(cluster, wanted)
            elected += sum(row.error_code == 0 for r in answer.replica_election_results for row in r.partition_result)
            writer.wait_for_progress()
    assert elected > 12
    verify_written(cluster.bootstrap_servers, "elected", writer)
    by_key: dict[int, list[int]] = {}
    for number in read(cluster.bootstrap_servers, "elected", len(writer.acknowledged)):
        by_key.setdefault(number % 10, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
