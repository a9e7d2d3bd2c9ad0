"""Three nodes as real processes: for a stock client the death of a node is only a pause."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.cluster.replica_bytes import verify_replicas
from compat_tests.support.number_writer import NumberWriter
from compat_tests.support.processes import OTTLA, NodeProcess, free_ports
from ottla.tools.cluster_join import LIVENESS_TIMEOUT_MS

WITHIN_S = 300.0


def wait_for(action: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """Return the result of a call once it is true."""
    deadline = time.monotonic() + within_s
    while not (found := action()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return found


def make_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(WITHIN_S)


def all_in_sync(bootstrap: str, topic: str) -> bool:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=WITHIN_S).topics[topic]
    # A node that does not know the topic yet returns no partition.
    return bool(found.partitions) and all(len(p.isrs) == 3 and p.leader >= 0 for p in found.partitions.values())


def read(bootstrap: str, topic: str, count: int) -> list[int]:
    """Return that many records of a topic, as numbers."""
    group = f"readers-of-{topic}-{time.monotonic_ns()}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    out: list[int] = []
    deadline = time.monotonic() + WITHIN_S
    while len(out) < count and time.monotonic() < deadline:
        out += [int(m.value()) for m in consumer.consume(1000, 1.0) if m.error() is None]
    consumer.close()
    return out


def verify_written(bootstrap: str, topic: str, writer: NumberWriter) -> None:
    """Verify that acknowledged records exist once, and no record was rejected."""
    assert writer.refused == []
    found = read(bootstrap, topic, len(writer.acknowledged))
    assert sorted(found) == sorted(writer.acknowledged)


def test_cluster_with_each_node_killed_once_loses_no_record() -> None:
    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, "t")
        with NumberWriter(bootstrap, "t") as writer:
            for node in (1, 2, 3):
                cluster.kill(node)
                writer.wait_for_progress()
                cluster.restart(node)
                wait_for(lambda: all_in_sync(bootstrap, "t"))
                writer.wait_for_progress()
        verify_written(bootstrap, "t", writer)
        assert verify_replicas(cluster, "t") > 3, "the leader of no partition changed"


def test_cluster_after_restart_has_all_records_and_members(tmp_path: Path) -> None:
    with ottla.Cluster(3, data_dir=str(tmp_path / "d")) as cluster:
        make_topic(cluster.bootstrap_servers, "t")
        with NumberWriter(cluster.bootstrap_servers, "t") as writer:
            writer.wait_for_progress()
    with ottla.Cluster(3, data_dir=str(tmp_path / "d")) as cluster:
        verify_written(cluster.bootstrap_servers, "t", writer)
        command = [OTTLA, "cluster", "status", "-b", cluster.bootstrap_servers, "-o", "json"]

        def is_complete() -> bool:
            done = subprocess.run(command, capture_output=True, check=False)
            rows = json.loads(done.stdout) if done.returncode == 0 else []
            states = sorted(row["quorum"] for row in rows), {row["broker"] for row in rows}
            return [row["node"] for row in rows] == [1, 2, 3] and states == (["leader", "voter", "voter"], {"alive"})

        wait_for(is_complete)


class OttlaFromFile(NodeProcess):
    """Node started with a ``server.properties``."""

    def __init__(self, file: Path, data_dir: Path, port: int) -> None:
        super().__init__(data_dir, port)
        self.file = file

    def command(self) -> list[str]:
        """Return the command line."""
        return [OTTLA, "serve", "--config", str(self.file)]


def start_together(nodes: Sequence[NodeProcess]) -> None:
    """Start nodes that wait for one another."""
    with ThreadPoolExecutor(len(nodes)) as threads:
        list(threads.map(lambda node: node.start(), nodes))


SAMPLE = """
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
num.partitions=1
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
"""


def combined_nodes(folder: Path) -> list[OttlaFromFile]:
    """Return three nodes of both roles, with static voters."""
    ports = free_ports(6)
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports[3:], 1))
    return [
        formatted(
            folder,
            i,
            client,
            f"process.roles=broker,controller\ncontroller.quorum.voters={voters}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{client}\ninter.broker.listener.name=PLAINTEXT\n",
        )
        for i, (client, controller) in enumerate(zip(ports[:3], ports[3:], strict=True), 1)
    ]


def separate_nodes(folder: Path, *, dynamic: bool) -> list[OttlaFromFile]:
    """Return three controllers and three brokers; the voters are static or records."""
    ports = free_ports(6)
    named = [f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports[:3], 1)]
    directories = ["JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA"]
    voters, options = f"controller.quorum.voters={','.join(named)}\n", []
    if dynamic:
        voters = f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}\n"
        listed = ",".join(f"{name}:{where}" for name, where in zip(named, directories, strict=True))
        options = ["--initial-controllers", listed]
    nodes = []
    for i, port in enumerate(ports, 1):
        role, listener = ("controller", "CONTROLLER") if i <= 3 else ("broker", "PLAINTEXT")
        text = f"process.roles={role}\nlisteners={listener}://127.0.0.1:{port}\n{voters}"
        nodes.append(formatted(folder, i, port, text, *(options if i <= 3 else [])))
    return nodes


def formatted(folder: Path, node_id: int, port: int, text: str, *options: str) -> OttlaFromFile:
    """Return a node with a file as users have it for Kafka, formatted as Kafka is."""
    file, data = folder / f"{node_id}.properties", folder / f"data-{node_id}"
    file.write_text(f"{text}node.id={node_id}\nlog.dirs={data}\n{SAMPLE}")
    command = [OTTLA, "format", "--cluster-id", "5L6g3nShT-eMCtK--X86sw", "--config", str(file), *options]
    subprocess.run(command, check=True, capture_output=True)
    return OttlaFromFile(file, data, port)


@contextlib.contextmanager
def running_nodes(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    """Start nodes, and stop them together at the end."""
    try:
        start_together(nodes)
        yield
    finally:
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(lambda node: node.stop(), nodes))


@pytest.mark.parametrize("kind", ["combined", "apart, fixed voters", "apart, voters as records"])
def test_nodes_with_server_properties_of_kafka_start_and_survive_kills(tmp_path: Path, kind: str) -> None:
    nodes = combined_nodes(tmp_path) if kind == "combined" else separate_nodes(tmp_path, dynamic="records" in kind)
    brokers = nodes[-3:]
    with running_nodes(nodes):
        for node in nodes:  # a controller serves a moment before it logs that it has started
            wait_for(lambda node=node: f"Kafka Server started: {node.bootstrap}, data in" in node.log.read_text())
        bootstrap = ",".join(node.bootstrap for node in brokers)
        make_topic(bootstrap, "t")
        with NumberWriter(bootstrap, "t") as writer:
            for node in {nodes[0], brokers[0]}:
                node.kill()
                writer.wait_for_progress()
                node.start()
                wait_for(lambda: all_in_sync(bootstrap, "t"))
        verify_written(bootstrap, "t", writer)


@contextlib.contextmanager
def stopped_together(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    """Stop processes at the same time: the last of a sequence would have no voter left to resign to."""
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(300)
            assert process.stdout is not None
            process.stdout.close()


def start_node(tmp_path: Path, ports: list[int], number: int) -> subprocess.Popen[str]:
    """Start one node; all but the first join the first."""
    command = [OTTLA, "serve", "--data-dir", str(tmp_path / str(number)), "--listen", f"127.0.0.1:{ports[number - 1]}"]
    command += ["--node-id", str(number)]
    if number > 1:
        command += ["--join", f"127.0.0.1:{ports[0]}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def has_started(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return "Kafka Server started" in process.stdout.readline()


@pytest.mark.parametrize("waits", [True, False])
def test_single_node_joined_by_two_nodes_becomes_cluster(tmp_path: Path, waits: bool) -> None:
    ports = free_ports(3)
    processes: list[subprocess.Popen[str]] = []
    with stopped_together(processes):
        for number in (1, 2, 3):
            processes.append(start_node(tmp_path, ports, number))
            assert not (waits or number == 1) or has_started(processes[-1])
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        client = AdminClient({"bootstrap.servers": bootstrap})
        wait_for(lambda: len(client.list_topics(timeout=WITHIN_S).brokers) == 3)
        make_topic(bootstrap, "t")
        with NumberWriter(bootstrap, "t") as writer:
            writer.wait_for_progress()
        verify_written(bootstrap, "t", writer)


def voters(port: int) -> dict[int, int]:
    """Return the lag of each voter in records of the metadata log, as the leader reports it; empty without a leader."""
    line = [OTTLA, "cluster", "status", "-b", f"127.0.0.1:{port}", "-o", "json"]
    done = subprocess.run(line, capture_output=True, check=False, timeout=WITHIN_S)
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return {row["node"]: row["metadata lag"] for row in rows if row["quorum"] in ("leader", "voter")}


def test_node_with_lost_disk_rejoins_isr_and_voters(tmp_path: Path) -> None:
    ports = free_ports(3)
    processes: list[subprocess.Popen[str]] = []
    with stopped_together(processes):
        for number in (1, 2, 3):
            processes.append(start_node(tmp_path, ports, number))
            assert has_started(processes[-1])
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        wait_for(lambda: len(voters(ports[0])) == 3)
        make_topic(bootstrap, "t")
        with NumberWriter(bootstrap, "t") as writer:
            writer.wait_for_progress()
            processes[2].kill()
            processes[2].communicate()
            shutil.rmtree(tmp_path / "3")
            writer.wait_for_progress()
            time.sleep(LIVENESS_TIMEOUT_MS / 1000 + 1)  # a node of that id counts as alive until then
            processes[2] = start_node(tmp_path, ports, 3)
            assert has_started(processes[2])
            wait_for(lambda: all_in_sync(bootstrap, "t"))
            writer.wait_for_progress()
        verify_written(bootstrap, "t", writer)
        wait_for(lambda: len(found := voters(ports[0])) == 3 and max(found.values()) < 10)
