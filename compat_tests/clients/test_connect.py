"""Kafka Connect with exactly-once source support: each line of a file arrives once although the worker is killed.

A distributed worker and Kafka's file source. ``OTTLA_CONNECT=8`` is the number of kills, on one node and on three nodes
whose brokers are killed as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.cluster.test_three_nodes import all_in_sync, make_topic, wait_for
from compat_tests.support.jars import JARS, classpath, jars
from compat_tests.support.processes import OttlaProcess, free_port

KILLS = int(os.environ.get("OTTLA_CONNECT", "0")) or 1
LINES = 6_000 * KILLS
AT_ONCE = 20
"""Lines in a transaction, few enough that a kill always interrupts one."""
WITHIN_S = 600.0
TOPIC, NAME = "lines", "source"
SETTINGS = """
bootstrap.servers={bootstrap}
group.id=connect
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
config.storage.replication.factor={replicas}
offset.storage.topic=connect-offsets
offset.storage.replication.factor={replicas}
offset.storage.partitions=1
status.storage.topic=connect-status
status.storage.replication.factor={replicas}
status.storage.partitions=1
listeners=http://127.0.0.1:{port}
plugin.path={plugins}
plugin.discovery=service_load
session.timeout.ms=6000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
producer.transaction.timeout.ms=10000
"""
QUICKLY = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
"""Settings of brokers.

A starting worker reads its offsets to their end, which an open transaction of the killed worker hides until the
transaction times out: 70 seconds by default.
"""


class ConnectWorker:
    """Worker of Kafka Connect with its HTTP interface."""

    def __init__(self, folder: Path, bootstrap: str, replicas: int, more: str = "") -> None:
        """Create a worker; ``more`` has lines of its settings."""
        jars("kafka")
        jars("connect")
        self._port = free_port()
        self._file = folder / "connect.properties"
        values = {"bootstrap": bootstrap, "replicas": replicas, "port": self._port, "plugins": JARS / "connect"}
        self._file.write_text(SETTINGS.format(**values) + more)
        self.log = folder / "connect.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker; its HTTP interface answers some seconds later."""
        command = ["java", "-Xmx256m", "-cp", classpath(), "org.apache.kafka.connect.cli.ConnectDistributed"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, str(self._file)], stdout=log, stderr=log)

    def kill(self) -> None:
        """``kill -9``: the transaction stays open, and the worker remains in its group."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request; None while the worker is unreachable."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None


@contextmanager
def worker(folder: Path, bootstrap: str, replicas: int, more: str = "") -> Iterator[ConnectWorker]:
    made = ConnectWorker(folder, bootstrap, replicas, more)
    made.start()
    try:
        yield made
    finally:
        made.kill()


class CommittedReader:
    """Consumer of the committed records of a topic of one partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "tail", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.seen: list[tuple[bytes | None, bytes | None]] = []

    def read(self) -> int:
        """Read further records and return the number of all read so far."""
        found = self._consumer.consume(10_000, 0.2)
        self.seen += [(m.key(), m.value()) for m in found if m.error() is None]
        return len(self.seen)

    def close(self) -> None:
        self._consumer.close()


def copy_file(folder: Path, bootstrap: str, replicas: int, kills: int, between: Callable[[int], None]) -> None:
    """Let the worker copy a file into a topic, kill it ``kills`` times, and verify the records."""
    file = folder / "lines.txt"
    lines = [f"line {number} {'x' * (number % 50)}" for number in range(LINES)]
    file.write_text("".join(f"{line}\n" for line in lines))
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": TOPIC,
        "batch.size": str(AT_ONCE),
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    tail = CommittedReader(bootstrap, TOPIC)
    with worker(folder, bootstrap, replicas) as connect:
        wait_for(lambda: connect.request("PUT", f"/connectors/{NAME}/config", connector), WITHIN_S)
        for number in range(kills):
            goal = LINES * (number + 1) // (kills + 2)
            wait_for(lambda goal=goal: tail.read() >= goal, WITHIN_S)
            connect.kill()
            between(number)
            connect.start()
        wait_for(lambda: tail.read() >= LINES, WITHIN_S)
        time.sleep(1.0)
        tail.read()
        offsets = [{"partition": {"filename": str(file)}, "offset": {"position": file.stat().st_size}}]
        wait_for(lambda: states(connect) == ["RUNNING"])
        wait_for(lambda: connect.request("GET", f"/connectors/{NAME}/offsets") == {"offsets": offsets})
    tail.close()
    assert [value.decode() for _, value in tail.seen if value is not None] == lines, "each once, and in order"
    stored = CommittedReader(bootstrap, "connect-offsets")
    wait_for(lambda: stored.read() and last_offset(stored) == (str(file), offsets[0]["offset"]))
    stored.close()


def states(connect: ConnectWorker) -> list[str]:
    """Return the states of the tasks as the worker reports them."""
    status = connect.request("GET", f"/connectors/{NAME}/status") or {"tasks": []}
    return [task["state"] for task in status["tasks"]]


def last_offset(stored: CommittedReader) -> tuple[str, Any]:
    """Return the file and the position that were written last."""
    key, value = stored.seen[-1]
    assert key is not None
    assert value is not None
    name, partition = json.loads(key)
    assert name == NAME
    return partition["filename"], json.loads(value)


def test_connect_file_source_after_worker_kills_copies_each_line_once(data_dir: Path, tmp_path: Path) -> None:
    with OttlaProcess(data_dir, **QUICKLY) as node:
        create_topic(node.bootstrap)
        copy_file(tmp_path, node.bootstrap, 1, KILLS, lambda _: None)


@pytest.mark.skipif("OTTLA_CONNECT" not in os.environ, reason="minutes: only where OTTLA_CONNECT says how many kills")
def test_connect_file_source_on_killed_cluster_copies_each_line_once(tmp_path: Path) -> None:
    with ottla.Cluster(3, settings=QUICKLY) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, TOPIC, 1)

        def between(number: int) -> None:
            node = number % 3 + 1
            cluster.kill(node)
            cluster.restart(node)
            for topic in (TOPIC, "connect-offsets", "__transaction_state"):
                wait_for(lambda topic=topic: all_in_sync(bootstrap, topic))

        copy_file(tmp_path, bootstrap, 3, KILLS, between)


def create_topic(bootstrap: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WITHIN_S)
