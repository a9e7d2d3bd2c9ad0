"""Nodes of a cluster that cannot reach one another, and clocks of a cluster that are advanced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import ottla
from compat_tests.support.raw_client import wait_until
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)
SETTINGS = {"ottla.faults": True, "broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3, settings={**SETTINGS, "min.insync.replicas": 2}) as running:
        yield running


def leader_of(cluster: ottla.Cluster, topic: str, *, requested: int) -> int:
    """Return the leader of partition 0 as a node sees it."""
    admin = AdminClient({"bootstrap.servers": cluster.node(requested).bootstrap_servers})
    found = admin.list_topics(topic, timeout=300).topics[topic].partitions.get(0)
    return -1 if found is None else int(found.leader)


def create_topic(cluster: ottla.Cluster, topic: str) -> None:
    """Create a topic of one partition, and wait until all nodes know its leader."""
    cluster.client.create_topic(topic, 1)
    for node in cluster.nodes:
        wait_until(partial(lambda node_id: leader_of(cluster, topic, requested=node_id) > 0, node.id))


def test_partitioned_leader_is_replaced_and_no_acknowledged_record_is_lost(cluster: ottla.Cluster) -> None:
    create_topic(cluster, "orders")
    cluster.client.produce("orders", b"before")
    leader = leader_of(cluster, "orders", requested=1)
    others = {1, 2, 3} - {leader}
    cluster.partition({leader}, others)
    reachable = ",".join(cluster.node(node_id).bootstrap_servers for node_id in others)
    wait_until(lambda: leader_of(cluster, "orders", requested=min(others)) in others)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": reachable, "enable.idempotence": True, "message.timeout.ms": 180_000})
    producer.produce("orders", b"during", partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(180) == 0
    assert failures == [None]
    cluster.heal()
    wait_until(lambda: leader_of(cluster, "orders", requested=leader) in others)
    cluster.client.produce("orders", b"after")
    values = [record.value for record in cluster.client.expect("orders", 3, timeout_s=180)]
    assert values == [b"before", b"during", b"after"]


def network_states(cluster: ottla.Cluster) -> list[list[str]]:
    """Return the addresses that each node cannot reach."""
    return [sorted(node.fault_connection.call("GET", "/faults")["blocked"]) for node in cluster.nodes]


def test_command_makes_the_partition_of_the_method_and_heals_it(cluster: ottla.Cluster) -> None:
    cluster.partition({1}, {2, 3})
    expected = network_states(cluster)
    assert [len(blocked) for blocked in expected] == [4, 2, 2]
    cluster.heal()
    where = ("--data-dir", os.path.dirname(cluster.node(1).data_dir))
    for words, blocked in ((["partition", "1", "2,3"], expected), (["heal"], [[], [], []])):
        done = run_command("fault", *words, *where)
        assert (done.status, done.out, done.err) == (0, b"", "")
        assert network_states(cluster) == blocked


def test_advanced_clocks_expire_records_without_an_election(cluster: ottla.Cluster) -> None:
    """A busy machine may fence a broker by chance, but not each time."""
    for attempt in range(5):
        topic = f"old-{attempt}"
        create_topic(cluster, topic)
        cluster.client.produce(topic, b"x")
        before = leader_of(cluster, topic, requested=1)
        cluster.advance_clocks(days=8)
        wait_until(lambda topic=topic: not cluster.client.records(topic))  # type: ignore[misc]
        if leader_of(cluster, topic, requested=1) == before:
            break
    assert leader_of(cluster, topic, requested=1) == before
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    assert len(consumer.list_topics(timeout=300).brokers) == 3
    consumer.close()


def test_paused_node_is_left_out_until_it_is_resumed(cluster: ottla.Cluster) -> None:
    create_topic(cluster, "paused")
    leader = leader_of(cluster, "paused", requested=1)
    other = leader % 3 + 1
    cluster.node(leader).pause()
    wait_until(lambda: leader_of(cluster, "paused", requested=other) not in (leader, -1))
    cluster.node(leader).resume()
    wait_until(lambda: leader_of(cluster, "paused", requested=leader) not in (leader, -1))
