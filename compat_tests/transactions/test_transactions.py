"""Transactions of stock producers: committed, aborted, fenced, and with kills and moves."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

import ottla
from compat_tests.cluster.test_three_nodes import (
    all_in_sync,
    has_started,
    make_topic,
    start_node,
    stopped_together,
    voters,
    wait_for,
)
from compat_tests.support.jars import classpath
from compat_tests.support.processes import OTTLA, OttlaProcess, free_ports

WAIT_S = 180.0


def command(*arguments: str, status: int = 0) -> str:
    done = subprocess.run([OTTLA, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def make(bootstrap: str, topic: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, replicas)])[topic].result(WAIT_S)


def confluent(bootstrap: str, name: str, **more: Any) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 60_000, **more}
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    return producer


def write(producer: Producer, topic: str, value: str) -> None:
    for partition in (0, 1):
        producer.produce(topic, f"{value}{partition}".encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return the records up to the last stable offset or the high watermark."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
    out: list[str] = []
    ends, deadline = 0, time.monotonic() + WAIT_S
    while ends < 2:
        assert time.monotonic() < deadline, out
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            out.append(message.value().decode())
        else:
            ends += 1
    consumer.close()
    return sorted(out)


def wait_until_committed(bootstrap: str, topic: str, wanted: list[str]) -> None:
    """Wait until read_committed consumers get these records: EndTxn returns before the markers are written."""
    deadline = time.monotonic() + WAIT_S
    while (found := read(bootstrap, topic)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == wanted


def committed_end(bootstrap: str, topic: str, partitions: int = 2) -> list[tuple[int, int]]:
    """Return the last stable offset and the high watermark of each partition."""
    out: list[list[int]] = []
    for isolation in ("read_committed", "read_uncommitted"):
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation})
        ends = [reader.get_watermark_offsets(TopicPartition(topic, number), 2.0) for number in range(partitions)]
        out.append([-1 if x is None else x[1] for x in ends])
        reader.close()
    return list(zip(*out, strict=True))


def commit_a_abort_b(producer: Producer, topic: str) -> None:
    """Commit one transaction and abort one."""
    for value, ends in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
        producer.begin_transaction()
        write(producer, topic, value)
        ends(WAIT_S)


def is_stable(bootstrap: str, topic: str, partitions: int = 2) -> bool:
    """Return True when no transaction is open: EndTxn returns before the markers are written."""
    try:
        return all(stable == end >= 0 for stable, end in committed_end(bootstrap, topic, partitions))
    except KafkaException:
        return False


# ---------------------------------------------------------------------- one node


def test_confluent_kafka_with_commit_and_abort_shows_committed_records_only(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    producer = confluent(node.bootstrap, topic)
    commit_a_abort_b(producer, topic)
    producer.begin_transaction()
    write(producer, topic, "c")
    wait_until_committed(node.bootstrap, topic, ["a0", "a1"])  # c is still open
    assert read(node.bootstrap, topic, "read_uncommitted") == ["a0", "a1", "b0", "b1", "c0", "c1"]
    producer.commit_transaction(WAIT_S)
    wait_until_committed(node.bootstrap, topic, ["a0", "a1", "c0", "c1"])


def test_confluent_kafka_with_id_initialized_again_is_fenced(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    first = confluent(node.bootstrap, topic)
    first.begin_transaction()
    write(first, topic, "a")
    second = confluent(node.bootstrap, topic)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, "b")
    second.commit_transaction(WAIT_S)
    wait_until_committed(node.bootstrap, topic, ["b0", "b1"])


def test_kafka_python_with_commit_and_abort_shows_committed_records_only(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=topic, transaction_timeout_ms=60_000)
    producer.init_transactions()
    for value, ends in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, f"{value}{partition}".encode(), partition=partition).get(WAIT_S)
        ends()
    producer.close()
    wait_until_committed(node.bootstrap, topic, ["a0", "a1"])
    assert read(node.bootstrap, topic, "read_uncommitted") == ["a0", "a1", "b0", "b1"]


def in_java(bootstrap: str, *names: str) -> None:
    """Run commits, aborts and a fencing of Kafka's producer, over a topic of two partitions.

    ``pairs`` are topics, each followed by its transactional id.
    """
    program = Path(__file__).parent.parent / "java" / "TransactionalProducer.java"
    done = subprocess.run(
        ["java", "-cp", classpath(), str(program), bootstrap, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    committed = sorted(f"{v}{p}" for v in ["a", *(f"c{i}-" for i in range(20)), "f"] for p in (0, 1))
    output = done.stdout.splitlines()
    assert len(output) == 8 * len(names) // 2
    for at in range(0, len(output), 8):
        lines = output[at : at + 8]
        assert lines[:5] == ["committed", "aborted", "aborted empty", "committed 20", "second initialized"]
        assert lines[5] in {"fenced: InvalidProducerEpochException", "fenced: ProducerFencedException"}
        assert lines[6] == f"committed: [{', '.join(committed)}]"
        assert int(lines[7].split()[1]) == 48, "what was aborted stands in the log; what came after the fence does not"


def test_java_producer_commits_aborts_and_is_fenced(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    in_java(node.bootstrap, topic, topic)


def test_transaction_over_restart_of_single_node_is_committed(data_dir: Path, topic: str) -> None:
    with OttlaProcess(data_dir) as node:
        make(node.bootstrap, topic)
        producer = confluent(node.bootstrap, topic)
        producer.begin_transaction()
        write(producer, topic, "a")
        node.kill()
        node.start()
        write(producer, topic, "b")
        producer.commit_transaction(WAIT_S)
        wait_until_committed(node.bootstrap, topic, ["a0", "a1", "b0", "b1"])


def test_transaction_beyond_timeout_is_aborted(data_dir: Path, topic: str) -> None:
    every = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with OttlaProcess(data_dir, **every) as node:
        make(node.bootstrap, topic)
        left = confluent(node.bootstrap, topic, **{"transaction.timeout.ms": 1_000})
        left.begin_transaction()
        write(left, topic, "a")
        other = confluent(node.bootstrap, "other")
        other.begin_transaction()
        write(other, topic, "b")
        other.commit_transaction(WAIT_S)
        wait_for(lambda: read(node.bootstrap, topic) == ["b0", "b1"])


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    # A read_committed consumer waits here for the end of an open transaction.
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number) for number in (0, 1)]

    def found() -> list[TopicPartition] | None:
        with contextlib.suppress(KafkaException):  # the coordinator is still loading
            return list(reader.committed(places, WAIT_S))
        return None

    offsets = [x.offset for x in wait_for(found)]
    reader.close()
    return offsets


def test_offsets_sent_to_transaction_are_stored_on_commit_only(node: OttlaProcess, topic: str, group: str) -> None:
    """Consume, transform, produce, and send offsets: once committed, once aborted."""
    target = f"{topic}-copied"
    for name in (topic, target):
        make(node.bootstrap, name)
    source = confluent(node.bootstrap, topic)
    source.begin_transaction()
    write(source, topic, "a")
    source.commit_transaction(WAIT_S)
    settings = {"bootstrap.servers": node.bootstrap, "group.id": group, "enable.auto.commit": False}
    reader = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    reader.subscribe([topic])
    copier = confluent(node.bootstrap, target)
    got: list[Any] = []
    wait_for(lambda: got.extend(m for m in reader.consume(2, 0.5) if m.error() is None) or len(got) == 2)
    positions = [TopicPartition(m.topic(), m.partition(), m.offset() + 1) for m in got]
    for ends, stored in ((copier.abort_transaction, [-1001, -1001]), (copier.commit_transaction, [1, 1])):
        copier.begin_transaction()
        for message in got:
            copier.produce(target, message.value(), partition=message.partition())
        copier.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S)
        assert committed(node.bootstrap, group, topic) == [-1001, -1001]
        ends(WAIT_S)
        wait_for(lambda stored=stored: committed(node.bootstrap, group, topic) == stored)
    reader.close()
    wait_until_committed(node.bootstrap, target, ["a0", "a1"])


# ---------------------------------------------------------------------- three nodes


class TransactionalWriter:
    """Producer that writes each number in a transaction of its own, and repeats aborted ones."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._producer = confluent(bootstrap, "ledger", **{"transaction.timeout.ms": 60_000})
        self.committed: list[str] = []

    def _begin(self, value: str) -> None:
        self._producer.begin_transaction()
        for partition in (0, 1):
            self._producer.produce(self._topic, f"{value}{partition}".encode(), partition=partition)

    def write(self, number: int, between: Callable[[], None] = lambda: None) -> None:
        """Write one number; ``between`` is called while its transaction is open.

        An aborted one precedes every third.
        """
        deadline = time.monotonic() + 2 * WAIT_S
        if number % 3 == 0:
            self._begin(f"never-{number}-")
            self._producer.abort_transaction(WAIT_S)
        while True:
            assert time.monotonic() < deadline
            try:
                self._begin(f"{number}-")
                self._producer.flush(WAIT_S)
                between()
                between = lambda: None  # noqa: E731 - once
                self._producer.commit_transaction(WAIT_S)
            except KafkaException as error:
                why = error.args[0]
                assert not why.fatal(), why
                if why.txn_requires_abort():
                    self._producer.abort_transaction(WAIT_S)
                else:
                    self._producer.commit_transaction(WAIT_S)
                    break
            else:
                break
        self.committed += [f"{number}-0", f"{number}-1"]


def test_transactions_over_coordinator_kills_are_completed() -> None:
    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, "t", 2)
        ledger = TransactionalWriter(bootstrap, "t")
        ledger.write(0)
        wait_for(lambda: all_in_sync(bootstrap, "__transaction_state"))
        for number in (1, 2, 3):
            ledger.write(10 * number, partial(cluster.kill, number))
            ledger.write(10 * number + 1)
            cluster.restart(number)
            for name in ("t", "__transaction_state"):
                wait_for(partial(all_in_sync, bootstrap, name))
        wait_until_committed(bootstrap, "t", sorted(ledger.committed))


def test_internal_topics_of_grown_cluster_survive_loss_of_first_node(tmp_path: Path) -> None:
    """Replication factor of the internal topics: it grows with each broker, up to three."""
    ports = free_ports(3)
    processes: list[subprocess.Popen[str]] = []
    with stopped_together(processes):
        processes.append(start_node(tmp_path, ports, 1))
        assert has_started(processes[0])
        alone = f"127.0.0.1:{ports[0]}"
        make(alone, "one")
        producer = confluent(alone, "grows")
        group = Consumer({"bootstrap.servers": alone, "group.id": "grows"}).consumer_group_metadata()
        producer.begin_transaction()
        write(producer, "one", "a")
        producer.send_offsets_to_transaction([TopicPartition("one", 0, 1)], group, WAIT_S)
        producer.commit_transaction(WAIT_S)
        wait_for(lambda: committed(alone, "grows", "one") == [1, -1001])
        processes += [start_node(tmp_path, ports, number) for number in (2, 3)]
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        for topic in ("__transaction_state", "__consumer_offsets"):
            wait_for(lambda topic=topic: all_in_sync(bootstrap, topic))
        wait_for(lambda: list(voters(ports[0]).values()) == [0, 0, 0])
        make_topic(bootstrap, "t", 2)
        producer = confluent(bootstrap, "grows")
        producer.begin_transaction()
        write(producer, "t", "b")
        processes[0].kill()
        processes[0].wait()
        producer.commit_transaction(2 * WAIT_S)
        rest = bootstrap.partition(",")[2]
        wait_until_committed(rest, "t", ["b0", "b1"])
        assert committed(rest, "grows", "t") == [-1001, -1001]
        requested = Consumer({"bootstrap.servers": rest, "group.id": "grows"})
        assert requested.committed([TopicPartition("one", 0)], WAIT_S)[0].offset == 1
        requested.close()
