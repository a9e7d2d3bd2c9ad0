"""Transactions in a cluster of both kinds: coordinators on a Kafka broker with leaders of Ottla, and the reverse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.cluster.test_mixed_cluster import (
    are_all_in_sync,
    brokers,
    kafka_under_ours,
    ours_under_kafka,
    partitions,
)
from compat_tests.cluster.test_three_nodes import wait_for
from compat_tests.support.processes import java_tool
from compat_tests.transactions.test_transactions import (
    WAIT_S,
    committed,
    confluent,
    in_java,
    wait_until_committed,
    write,
)
from ottla.broker.coordinator.runtime import partition_for_key

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
COUNTS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
"""Partition counts of internal topics on every node: half of the names belong to each kind of broker."""
NODE = "".join(f"{key}={value}\n" for key, value in COUNTS.items())


class MixedCluster(NamedTuple):
    """Cluster with partitions 0 led by Kafka and 1 by Ottla, of the topic and of both internal topics."""

    bootstrap: str
    kill: dict[int, Callable[[], None]]
    """Functions that kill the leader, by partition."""
    start: dict[int, Callable[[], Any]]


def create_topics(bootstrap: str, kafka: int, ours: int, third: int) -> None:
    """Create the topics: the first partition of each is led by Kafka, the second by Ottla, the other is a replica."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assignment = [[kafka, ours, third], [ours, kafka, third]]
    plain = {"min.insync.replicas": "2"}
    compacted = {**plain, "cleanup.policy": "compact"}
    for name, config in {"m": plain, "java-0": plain, "java-1": plain, STATE: compacted, OFFSETS: compacted}.items():
        admin.create_topics([NewTopic(name, 2, replica_assignment=assignment, config=config)])[name].result(WAIT_S)
        wait_for(lambda name=name: leaders(bootstrap, name) == [kafka, ours])


def leaders(bootstrap: str, topic: str) -> list[int]:
    """Return the leader of each partition."""
    return [leader for _, (leader, _) in sorted(partitions(bootstrap, topic).items())]


def name_for(partition: int, words: str) -> str:
    """Return a transactional id, or a group, that belongs to a partition of two."""
    names = (f"{words}-{number}" for number in itertools.count())
    return next(name for name in names if partition_for_key(name, 2) == partition)


def ends(bootstrap: str, coordinator: int) -> list[str]:
    """Commit and abort over both leaders with one coordinator; return the records of a read_committed consumer."""
    words = f"ends-{coordinator}"
    producer = confluent(bootstrap, name_for(coordinator, words))
    for value, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
        producer.begin_transaction()
        write(producer, "m", f"{words}-{value}")
        end(WAIT_S)
    producer.begin_transaction()
    producer.commit_transaction(WAIT_S)  # an empty transaction
    producer.begin_transaction()
    write(producer, "m", f"{words}-c")
    producer.commit_transaction(WAIT_S)
    return [f"{words}-{value}{number}" for value in "ac" for number in (0, 1)]


def fenced(bootstrap: str, coordinator: int) -> list[str]:
    """Initialize an id twice: the first producer is fenced, and its open transaction is aborted."""
    words = f"fenced-{coordinator}"
    name = name_for(coordinator, words)
    first = confluent(bootstrap, name)
    first.begin_transaction()
    write(first, "m", f"{words}-a")
    second = confluent(bootstrap, name)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    write(second, "m", f"{words}-b")
    second.commit_transaction(WAIT_S)
    return [f"{words}-b0", f"{words}-b1"]


def positions(bootstrap: str, coordinator: int, group_coordinator: int) -> list[str]:
    """Send offsets of a group with another coordinator to a transaction, once aborted and once committed."""
    words = f"positions-{coordinator}-{group_coordinator}"
    group = name_for(group_coordinator, words)
    own = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **own})
    reader.subscribe(["m"])
    wait_for(lambda: len(reader.assignment()) == 2 or reader.poll(0.2))
    wait_for(reader.assignment)
    copier = confluent(bootstrap, name_for(coordinator, words))
    at = [TopicPartition("m", number, 7 + number) for number in (0, 1)]
    for value, end, stored in (
        ("a", copier.abort_transaction, [-1001, -1001]),
        ("b", copier.commit_transaction, [7, 8]),
    ):
        copier.begin_transaction()
        write(copier, "m", f"{words}-{value}")
        copier.send_offsets_to_transaction(at, reader.consumer_group_metadata(), WAIT_S)
        assert committed(bootstrap, group, "m") == [-1001, -1001]
        end(WAIT_S)
        wait_for(lambda stored=stored: committed(bootstrap, group, "m") == stored)
    reader.close()
    return [f"{words}-b0", f"{words}-b1"]


def fail_over(cluster: MixedCluster, coordinator: int) -> list[str]:
    """Kill the coordinator in a transaction; the other kind of broker continues from its log."""
    words = f"outlived-{coordinator}"
    producer = confluent(cluster.bootstrap, name_for(coordinator, words), **{"transaction.timeout.ms": 60_000})
    producer.begin_transaction()
    write(producer, "m", f"{words}-a")
    cluster.kill[coordinator]()
    write(producer, "m", f"{words}-b")
    producer.commit_transaction(2 * WAIT_S)
    cluster.start[coordinator]()
    for topic in ("m", STATE, OFFSETS):
        wait_for(lambda topic=topic: are_all_in_sync(cluster.bootstrap, topic))
    command = ["--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions"]
    java_tool("LeaderElectionCommand", *command)
    return [f"{words}-{value}{number}" for value in "ab" for number in (0, 1)]


JAVA = ("java-0", name_for(0, "java"), "java-1", name_for(1, "java"))
"""Topics and ids for Kafka's producer, for each kind of coordinator, with transaction version 2; librdkafka has 1."""


def run_scenarios(cluster: MixedCluster, kills: tuple[int, ...]) -> None:
    """Run all scenarios with each kind of coordinator; then verify the records."""
    bootstrap = cluster.bootstrap
    expected = []
    for coordinator in (0, 1):
        expected += ends(bootstrap, coordinator)
        expected += fenced(bootstrap, coordinator)
        for group_coordinator in (0, 1):
            expected += positions(bootstrap, coordinator, group_coordinator)
    for coordinator in kills:
        expected += fail_over(cluster, coordinator)
        expected += ends_again(bootstrap, coordinator)
    wait_until_committed(bootstrap, "m", sorted(expected))
    wait_for(lambda: states(bootstrap) <= {"CompleteCommit", "CompleteAbort"})


def states(bootstrap: str) -> set[str]:
    """Return the states of all transactional ids, as Kafka's tool lists them."""
    listed = java_tool("TransactionsCommand", "--bootstrap-server", bootstrap, "list")
    return {line.split()[3] for line in listed.splitlines()[1:]}


def ends_again(bootstrap: str, coordinator: int) -> list[str]:
    """Reuse the transactional id of a producer that had another coordinator."""
    words = f"outlived-{coordinator}"
    producer = confluent(bootstrap, name_for(coordinator, words))
    producer.begin_transaction()
    write(producer, "m", f"{words}-c")
    producer.commit_transaction(WAIT_S)
    return [f"{words}-c0", f"{words}-c1"]


def test_transactions_with_kafka_and_ottla_coordinators_on_ottla_controllers(tmp_path: Path) -> None:
    with ottla.Cluster(3, settings=COUNTS) as cluster, kafka_under_ours(cluster, tmp_path, NODE) as kafka:
        bootstrap = cluster.bootstrap_servers
        create_topics(bootstrap, 9, 1, 2)
        in_java(bootstrap, *JAVA)
        kills = {0: kafka.kill, 1: lambda: cluster.kill(1)}
        run_scenarios(MixedCluster(bootstrap, kills, {0: kafka.start, 1: lambda: cluster.restart(1)}), (0, 1))
        assert kafka.unexpected_log_lines() == []


def test_transactions_with_kafka_and_ottla_coordinators_on_kafka_controller(tmp_path: Path) -> None:
    with ours_under_kafka(tmp_path, NODE) as (kafka, (seven, eight)):
        bootstrap = ",".join(node.bootstrap for node in (kafka, seven, eight))
        wait_for(lambda: brokers(bootstrap) == {1, 7, 8})
        create_topics(bootstrap, 1, 7, 8)
        in_java(bootstrap, *JAVA)
        run_scenarios(MixedCluster(bootstrap, {1: seven.kill}, {1: seven.start}), (1,))
        assert kafka.unexpected_log_lines() == []
