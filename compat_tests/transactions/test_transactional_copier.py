"""Kafka's TransactionalMessageCopier on three nodes with killed brokers and copiers: the output equals the input.

``OTTLA_COPIES`` is the number of brokers and of copiers that are killed (20 in the campaign, over 100,000 records).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import ottla
from compat_tests.cluster.test_three_nodes import WITHIN_S, all_in_sync, make_topic, wait_for
from compat_tests.support.jars import classpath, jars
from compat_tests.transactions.test_transactions import is_stable

KILLS = int(os.environ.get("OTTLA_COPIES", "0"))
RECORDS = 50_000 if KILLS else 1_000
"""Records in each partition."""
AT_ONCE = 25 if KILLS else 10
"""Records in a transaction, enough to leave time for a kill."""
ENDS_WITHIN_S = 1800.0 if KILLS else 300.0
PARTITIONS = (0, 1)
INPUT, OUTPUT, GROUP = "input", "output", "copiers"


class CopierProcess:
    """Copier of one partition, with one transactional id over all its starts."""

    def __init__(self, bootstrap: str, partition: int, log: Path) -> None:
        jars("kafka")
        names = {
            "broker-list": bootstrap,
            "input-topic": INPUT,
            "output-topic": OUTPUT,
            "consumer-group": GROUP,
            "input-partition": partition,
            "transactional-id": f"copier-{partition}",
            "transaction-size": AT_ONCE,
            "transaction-timeout": 10_000,
        }
        self._command = ["java", "-Xmx128m", "-cp", classpath(), "org.apache.kafka.tools.TransactionalMessageCopier"]
        self._command += [word for name, value in names.items() for word in (f"--{name}", str(value))]
        self._command += ["--use-group-metadata", "--enable-random-aborts"]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """``kill -9``: its transaction stays open."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def has_copied_all(self) -> bool:
        """Return True when it has ended with all records copied; restart it after a failure, as a supervisor would."""
        assert self._process is not None
        status = self._process.poll()
        if status == 0:
            return True
        if status is not None:
            self.start()
        return False


@contextmanager
def copiers(bootstrap: str, directory: Path) -> Iterator[list[CopierProcess]]:
    made = [CopierProcess(bootstrap, number, directory / f"copier-{number}.log") for number in PARTITIONS]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.kill()


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        for partition in PARTITIONS:
            producer.produce(INPUT, f"{partition}-{number}", partition=partition)
        if number % 1000 == 0:
            producer.flush(WITHIN_S)
    assert producer.flush(WITHIN_S) == 0


def committed(bootstrap: str) -> dict[int, list[str]]:
    """Return the committed records of each partition of the output, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(OUTPUT, number, 0) for number in PARTITIONS])
    out: dict[int, list[str]] = {number: [] for number in PARTITIONS}
    left, deadline = set(PARTITIONS), time.monotonic() + WITHIN_S
    while left:
        assert time.monotonic() < deadline, "it cannot be read to its end"
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                out[message.partition()].append(message.value().decode())
            else:
                left.discard(message.partition())
    consumer.close()
    return out


def copied(bootstrap: str) -> int:
    """Return the sum of committed offsets; -1 while the coordinator is loading."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition(INPUT, number) for number in PARTITIONS], WITHIN_S)
    except KafkaException:
        return -1
    finally:
        consumer.close()
    return sum(max(at.offset, 0) for at in found)


def test_transactional_copiers_under_kills_copy_each_record_once_in_order(tmp_path: Path) -> None:
    kills = max(KILLS, 1)
    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        for topic in (INPUT, OUTPUT):
            make_topic(bootstrap, topic, len(PARTITIONS))
        write(bootstrap)
        with copiers(bootstrap, tmp_path) as running:
            turns, at_work = itertools.count(1), 0
            for number in range(kills):
                for victim in ("broker", "copier"):
                    goal = 2 * RECORDS * next(turns) // (2 * kills + 1)
                    wait_for(lambda goal=goal: copied(bootstrap) >= goal or all_done(running), ENDS_WITHIN_S)
                    at_work += not all_done(running)
                    if victim == "copier":
                        running[number % 2].kill()
                        running[number % 2].start()
                        continue
                    node = number % 3 + 1
                    cluster.kill(node)
                    time.sleep(2.0)
                    cluster.restart(node)
                    for topic in (INPUT, OUTPUT, "__transaction_state", "__consumer_offsets"):
                        wait_for(lambda topic=topic: all_in_sync(bootstrap, topic), ENDS_WITHIN_S)
            wait_for(lambda: all_done(running), ENDS_WITHIN_S)
            print(f"{at_work} of {2 * kills} were killed while there was something to copy")
            assert at_work > KILLS, "copying is over before the kills are: it takes more records"
        wait_for(lambda: is_stable(bootstrap, OUTPUT, len(PARTITIONS)))
        found = committed(bootstrap)
    for number in PARTITIONS:
        want = [f"{number}-{n}" for n in range(RECORDS)]
        if found[number] != want:
            at = next(n for n, (a, b) in enumerate(itertools.zip_longest(want, found[number])) if a != b)
            pytest.fail(f"{number}: {len(found[number])} records, at {at}: {found[number][at : at + 5]}")


def all_done(running: list[CopierProcess]) -> bool:
    return {one.has_copied_all() for one in running} == {True}
