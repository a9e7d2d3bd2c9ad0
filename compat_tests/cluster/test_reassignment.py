"""Replicas and leaders that move in clusters of processes: by Kafka's tools, by our commands, and automatically."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.processes import OTTLA, java_tool
from compat_tests.support.round_trip import round_trip
from ottla.cluster import Cluster

WAIT_S = 300.0
Replicas = dict[int, tuple[int, list[int], list[int]]]
"""Leader, replicas and in-sync replicas of each partition."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ottla.Cluster(4) as out:
        yield out


def until(done: Callable[[], Any]) -> Any:
    """Wait until a result is true, and return it."""
    end = time.monotonic() + WAIT_S
    while not (found := done()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)
    return found


def make(cluster: Cluster, topic: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(WAIT_S)


def replicas(cluster: Cluster, topic: str) -> Replicas:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    return {n: (p.leader, list(p.replicas), sorted(p.isrs)) for n, p in found.items()}


def topics(cluster: Cluster) -> list[str]:
    return list(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=WAIT_S).topics)


def command(cluster: Cluster, *words: str) -> Any:
    """Return the JSON output of ``ottla cluster``."""
    line = [OTTLA, "cluster", *words, "-b", cluster.nodes[0].bootstrap_servers, "-o", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kafka_reassignment_and_election_tools_move_replicas_and_leaders(cluster: Cluster, tmp_path: Path) -> None:
    make(cluster, "tools", 3, 2)
    assert round_trip(cluster.bootstrap_servers, "tools") == b"hello"
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"topics": [{"topic": "tools"}], "version": 1}))
    name = "reassign.ReassignPartitionsCommand"
    output = java_tool(name, *at, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate")
    plan.write_text(output.strip().splitlines()[-1])
    requested = {p["partition"]: p["replicas"] for p in json.loads(plan.read_text())["partitions"]}
    output = java_tool(name, *at, "--reassignment-json-file", str(plan), "--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments for tools-0,tools-1,tools-2" in output
    until(lambda: "No partition reassignments found" in java_tool(name, *at, "--list"))
    verify = (name, *at, "--reassignment-json-file", str(plan), "--verify")
    # the tool asks any broker, which may get the new metadata later
    until(lambda: java_tool(*verify).count("is completed.") == 3)
    until(lambda: {n: p[1] for n, p in replicas(cluster, "tools").items()} == requested)
    elect = "LeaderElectionCommand"
    java_tool(elect, *at, "--election-type", "preferred", "--all-topic-partitions")
    until(lambda: {n: p[0] for n, p in replicas(cluster, "tools").items()} == {n: to[0] for n, to in requested.items()})
    output = java_tool(elect, *at, "--election-type", "unclean", "--topic", "tools", "--partition", "0")
    assert "Valid replica already elected for partitions tools-0" in output
    assert round_trip(cluster.bootstrap_servers, "tools", b"again") == b"again"


def is_even(cluster: Cluster) -> bool:
    """Return True when no broker has two replicas more than another."""
    every = [of for topic in topics(cluster) for _, of, _ in replicas(cluster, topic).values()]
    carries = Counter(broker for of in every for broker in of)
    return max(carries.values()) - min(carries[broker] for broker in (1, 2, 3, 4)) <= 1


def read_all(cluster: Cluster, topic: str) -> list[int]:
    """Return all records of a topic, in no order."""
    line = [OTTLA, "consume", topic, "--from-beginning", "--exit", "-b", cluster.nodes[0].bootstrap_servers]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    return [int(text) for text in done.stdout.split()]


def test_cluster_drain_and_rebalance_under_load_keep_all_records(cluster: Cluster) -> None:
    make(cluster, "busy", 6, 2)
    with NumberWriter(cluster.bootstrap_servers, "busy", partitioned(6)) as load:
        load.wait_for_progress(200)
        command(cluster, "drain", "2")
        until(lambda: all(2 not in of and sorted(of) == isr for _, of, isr in replicas(cluster, "busy").values()))
        load.wait_for_progress(200)
        command(cluster, "rebalance")
        until(lambda: command(cluster, "rebalance", "--dry-run") == [])
    assert load.refused == []
    until(lambda: is_even(cluster))
    until(lambda: all(leader == of[0] for leader, of, _ in replicas(cluster, "busy").values()))
    assert sorted(read_all(cluster, "busy")) == sorted(load.acknowledged)


def test_auto_replica_recovery_after_broker_loss_restores_replication_factor() -> None:
    settings = {"auto.replica.recovery.after.ms": "1000", "broker.session.timeout.ms": "6000"}
    with ottla.Cluster(4, settings=settings) as cluster:
        make(cluster, "kept", 4, 3)
        with NumberWriter(cluster.bootstrap_servers, "kept", partitioned(4)) as load:
            load.wait_for_progress(100)
            cluster.kill(4)
            until(lambda: all(4 not in of and len(isr) == 3 for _, of, isr in replicas(cluster, "kept").values()))
            load.wait_for_progress(50)
        assert load.refused == []
        assert sorted(read_all(cluster, "kept")) == sorted(load.acknowledged)
