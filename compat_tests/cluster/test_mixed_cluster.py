"""Mixed clusters: a Kafka broker with Ottla's controllers, and Ottla's brokers with a Kafka controller.

``OTTLA_MIXED_S`` is the duration in seconds in which nodes are killed and leaders elected under three stock producers;
without it each node is killed once, under one producer.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.cluster.test_three_nodes import WITHIN_S, OttlaFromFile, verify_written, wait_for
from compat_tests.support.jars import classpath, jars
from compat_tests.support.number_writer import NumberWriter
from compat_tests.support.processes import OTTLA, NodeProcess, free_port, free_ports

FOR_S = float(os.environ.get("OTTLA_MIXED_S", "0"))
_ERRORS = "org.apache.kafka.common.errors."
REFUSED = (f"{_ERRORS}OutOfOrderSequenceException", f"{_ERRORS}NotEnoughReplicasException")
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


class KafkaNode(NodeProcess):
    """Apache Kafka with a file of settings."""

    def __init__(self, folder: Path, node_id: int, port: int, text: str, cluster_id: str, *options: str) -> None:
        super().__init__(folder / f"kafka-{node_id}", port)
        jars("kafka")
        self.file = folder / f"kafka-{node_id}.properties"
        self.file.write_text(f"{text}node.id={node_id}\nlog.dirs={self.data_dir}\n{SAMPLE}")
        tool = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format", "-t", cluster_id, *options]
        subprocess.run([*tool, "-c", str(self.file)], check=True, capture_output=True)

    def command(self) -> list[str]:
        """Return the command line."""
        return ["java", "-Xmx400m", "-cp", classpath(), "kafka.Kafka", str(self.file)]

    def unexpected_log_lines(self) -> list[str]:
        """Return the lines of the log that must not occur: errors, and records that cannot be replayed.

        Errors of a producer with several requests in flight around an election are expected.
        """
        lines = self.log.read_text(errors="replace").splitlines()
        pairs = [
            (line, why) for line, why in itertools.pairwise([*lines, ""]) if " ERROR " in line or " FATAL " in line
        ]
        return [line for line, why in pairs if "Error processing append" not in line or not why.startswith(REFUSED)]


SAMPLE = """
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


def broker_settings(port: int, controllers: str) -> str:
    return (
        f"process.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"controller.quorum.bootstrap.servers={controllers}\n"
    )


def rounds(bootstrap: str, topic: str) -> Iterator[None]:
    """Yield once, or as often as time permits; each round starts with every partition led by its preferred replica."""
    deadline = time.monotonic() + FOR_S
    while True:
        yield
        if time.monotonic() > deadline:
            return
        wait_for(lambda: are_all_in_sync(bootstrap, topic))
        subprocess.run([OTTLA, "cluster", "elect", "-b", bootstrap], check=True, capture_output=True)


def running_stock_producers(bootstrap: str) -> AbstractContextManager[Any]:
    """Run three stock producers when the campaign is long."""
    from compat_tests.cluster.producer_campaign import running_producers  # which imports from here

    return running_producers(bootstrap) if FOR_S else nullcontext()


def make(bootstrap: str, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with the given replicas; the first of each leads."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": "2"}
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
    admin.create_topics([new])[topic].result(WITHIN_S)


def brokers(bootstrap: str) -> set[int]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WITHIN_S).brokers)


def partitions(bootstrap: str, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Return (leader, ISR) of each partition."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=WITHIN_S).topics[topic]
    return {number: (p.leader, sorted(p.isrs)) for number, p in found.partitions.items()}


def are_all_in_sync(bootstrap: str, topic: str) -> bool:
    rows = partitions(bootstrap, topic)
    return bool(rows) and all(len(isr) == 3 for _, isr in rows.values())


def test_kafka_broker_with_ottla_controllers_leads_and_follows(tmp_path: Path) -> None:
    with ottla.Cluster(3) as cluster, kafka_under_ours(cluster, tmp_path) as kafka:
        bootstrap = cluster.bootstrap_servers
        make(bootstrap, "m", [[9, 1, 2], [1, 9, 3]])
        with running_stock_producers(bootstrap), NumberWriter(bootstrap, "m") as writer:
            writer.wait_for_progress()
            wait_for(lambda: partitions(bootstrap, "m") == {0: (9, [1, 2, 9]), 1: (1, [1, 3, 9])})
            for _ in rounds(bootstrap, "m"):
                kafka.kill()
                writer.wait_for_progress()
                kafka.start()
                wait_for(lambda: are_all_in_sync(bootstrap, "m"))
                cluster.kill(1)
                writer.wait_for_progress()
                cluster.restart(1)
                wait_for(lambda: are_all_in_sync(bootstrap, "m"))
        verify_written(bootstrap, "m", writer)
        assert kafka.unexpected_log_lines() == []


@contextmanager
def ours_under_kafka(folder: Path, more: str = "") -> Iterator[tuple[KafkaNode, list[OttlaFromFile]]]:
    """Kafka node of both roles and two brokers of Ottla; ``more`` has settings of all."""
    client, controller, *ports = free_ports(4)
    text = (
        f"{more}process.roles=broker,controller\n"
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
    )
    ours: list[OttlaFromFile] = []
    with KafkaNode(folder, 1, client, text, CLUSTER_ID, "--standalone") as kafka:
        try:
            for node_id, port in enumerate(ports, 7):
                file, data = folder / f"{node_id}.properties", folder / f"ottla-{node_id}"
                settings = more + broker_settings(port, f"127.0.0.1:{controller}")
                file.write_text(f"{settings}node.id={node_id}\nlog.dirs={data}\n{SAMPLE}")
                command: list[Any] = [OTTLA, "format", "--cluster-id", CLUSTER_ID, "--config", file]
                subprocess.run(command, check=True, capture_output=True)
                ours.append(OttlaFromFile(file, data, port).start())
            yield kafka, ours
        finally:
            for node in ours:
                node.stop()


@pytest.fixture
def under_kafka(tmp_path: Path) -> Iterator[tuple[KafkaNode, list[OttlaFromFile]]]:
    with ours_under_kafka(tmp_path) as nodes:
        yield nodes


@contextmanager
def kafka_under_ours(cluster: ottla.Cluster, folder: Path, more: str = "") -> Iterator[KafkaNode]:
    """Kafka broker with id 9 in a cluster of Ottla."""
    port = free_port()
    controllers = ",".join(f"127.0.0.1:{node.controller_port}" for node in cluster.nodes)
    meta = Path(cluster.nodes[0].data_dir, "meta.properties").read_text()
    cluster_id = next(line.partition("=")[2] for line in meta.splitlines() if line.startswith("cluster.id="))
    with KafkaNode(folder, 9, port, more + broker_settings(port, controllers), cluster_id) as kafka:
        wait_for(lambda: 9 in brokers(cluster.bootstrap_servers))
        yield kafka


def test_ottla_brokers_with_kafka_controller_lead_and_follow(
    under_kafka: tuple[KafkaNode, list[OttlaFromFile]],
) -> None:
    kafka, (seven, eight) = under_kafka
    bootstrap = ",".join(node.bootstrap for node in (kafka, seven, eight))
    wait_for(lambda: brokers(bootstrap) == {1, 7, 8})
    make(seven.bootstrap, "m", [[7, 8, 1], [8, 1, 7], [1, 7, 8]])  # through a broker of Ottla: in an envelope
    with running_stock_producers(bootstrap), NumberWriter(bootstrap, "m") as writer:
        writer.wait_for_progress()
        wait_for(lambda: {leader for leader, _ in partitions(bootstrap, "m").values()} == {1, 7, 8})
        for _ in rounds(bootstrap, "m"):
            seven.kill()
            writer.wait_for_progress()
            seven.start()
            wait_for(lambda: are_all_in_sync(bootstrap, "m"))
            assert eight.stop() == 0
            writer.wait_for_progress()
            eight.start()
            wait_for(lambda: are_all_in_sync(bootstrap, "m"))
    verify_written(bootstrap, "m", writer)
    assert kafka.unexpected_log_lines() == []
