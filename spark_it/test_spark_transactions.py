"""Test of Spark and transactions: a job with read_committed reads the committed records, on Ottla and on Apache Kafka.

A short form by default; ``OTTLA_SPARK_TXNS=2000`` is the number of transactions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.support.raw_client import wait_until
from compat_tests.transactions.test_transactions import is_stable
from spark_it.test_spark import create, send, stream

pytestmark = pytest.mark.xdist_group("spark")
TRANSACTIONS = int(os.environ.get("OTTLA_SPARK_TXNS", "0")) or 45
WITHIN_S = 120.0
PARTITIONS = 2
COMMITTED = {"kafka.isolation.level": "read_committed"}

Row = tuple[int, int, bytes]
"""Partition, offset, value."""


class ProducedValues(NamedTuple):
    """Values that a transactional producer has written in committed and in aborted transactions."""

    committed: list[bytes]
    aborted: list[bytes]


def producer_of(bootstrap: str, name: str) -> Producer:
    """Return a producer with transactional id ``name``, after InitProducerId."""
    own = {"transactional.id": name, "linger.ms": 0, "transaction.timeout.ms": 600_000}  # longer than jobs take
    made = Producer({"bootstrap.servers": bootstrap, **own})
    made.init_transactions(WITHIN_S)
    return made


def put(producer: Producer, topic: str, value: bytes, records: int) -> list[bytes]:
    """Write ``records`` records of the open transaction to both partitions in turn, and wait until they are in the log.

    Returns:
        Their values.
    """
    values = [b"%s.%d" % (value, index) for index in range(records)]
    for index, each in enumerate(values):
        producer.produce(topic, each, partition=index % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0
    return values


def transact(bootstrap: str, topic: str, name: str, count: int, *, commits: bool = True) -> ProducedValues:
    """Run ``count`` transactions of one to five records; return the values that were committed and aborted.

    Every third is aborted; all are if ``commits`` is False. ``name``: the transactional id.
    """
    producer, out = producer_of(bootstrap, name), ProducedValues([], [])
    for number in range(count):
        producer.begin_transaction()
        values = put(producer, topic, b"%s-%d" % (name.encode(), number), 1 + number % 5)
        if commits and number % 3:
            producer.commit_transaction(WITHIN_S)
            out.committed.extend(values)
        else:
            producer.abort_transaction(WITHIN_S)
            out.aborted.extend(values)
    return out


def rows(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> list[Row]:
    """Return partition, offset and value of all records that a batch job reads from a topic, sorted."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    found = reader.options(**options).load().select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, bytes(row.value)) for row in found)


def values(found: list[Row]) -> list[bytes]:
    return sorted(value for _, _, value in found)


# ---------------------------------------------------------------------- scenarios, each run on both


def batch_over_aborted_and_open_transactions(spark: SparkSession, bootstrap: str, _: Path) -> Any:
    create(bootstrap, "batch", PARTITIONS)
    written = transact(bootstrap, "batch", "done", TRANSACTIONS)
    left = producer_of(bootstrap, "left")
    left.begin_transaction()
    held = put(left, "batch", b"held", 4)
    behind = transact(bootstrap, "batch", "behind", 4)
    send(bootstrap, "batch", [b"outside of transactions"])
    before = rows(spark, bootstrap, "batch", **COMMITTED)
    assert values(before) == sorted(written.committed), "what lies behind an open transaction is not read"
    everything = rows(spark, bootstrap, "batch")
    assert len(everything) == len(written.committed + written.aborted + behind.committed + behind.aborted) + 5
    left.commit_transaction(WITHIN_S)
    wait_until(lambda: is_stable(bootstrap, "batch"))
    after = rows(spark, bootstrap, "batch", **COMMITTED)
    written_values = [*written.committed, *behind.committed, *held, b"outside of transactions"]
    assert values(after) == sorted(written_values)
    return before, [x for x in after if x[2] != b"outside of transactions"]  # any partition may have that


def stream_read_during_transactions(spark: SparkSession, bootstrap: str, where: Path) -> Any:
    create(bootstrap, "stream", PARTITIONS)
    out = str(where / "out")
    query = (
        stream(spark, bootstrap, "stream", maxOffsetsPerTrigger=40, **COMMITTED)
        .select("partition", "offset", "value")
        .writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    written = transact(bootstrap, "stream", "beside", TRANSACTIONS)
    wait_until(lambda: is_stable(bootstrap, "stream"))
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None
    found = sorted((row.partition, row.offset, bytes(row.value)) for row in spark.read.parquet(out).collect())
    assert values(found) == sorted(written.committed)
    return found


def stream_write_during_aborts(spark: SparkSession, bootstrap: str, where: Path) -> Any:
    """Scenario: a Spark job writes to partitions in which a transactional producer aborts at the same time.

    Returns:
        The sorted values that a job with read_committed reads.
    """
    for topic in ("from", "to"):
        create(bootstrap, topic, PARTITIONS)
    sent = [b"record %d" % number for number in range(10 * TRANSACTIONS)]
    half = len(sent) // 2
    send(bootstrap, "from", sent[:half])
    query = (
        stream(spark, bootstrap, "from", maxOffsetsPerTrigger=40)
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "to")
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    beside: list[ProducedValues] = []
    aborter = threading.Thread(
        target=lambda: beside.append(transact(bootstrap, "to", "aborter", TRANSACTIONS, commits=False))
    )
    aborter.start()
    send(bootstrap, "from", sent[half:])
    query.processAllAvailable()
    aborter.join()
    query.stop()
    assert query.exception() is None
    assert len(beside[0].aborted) >= TRANSACTIONS
    wait_until(lambda: is_stable(bootstrap, "to"))
    assert values(rows(spark, bootstrap, "to")) == sorted([*sent, *beside[0].aborted])
    found = values(rows(spark, bootstrap, "to", **COMMITTED))
    assert found == sorted(sent)
    return found


SCENARIOS: list[Callable[[SparkSession, str, Path], Any]] = [
    batch_over_aborted_and_open_transactions,
    stream_read_during_transactions,
    stream_write_during_aborts,
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NodeProcess]]:
    """Start Ottla and Apache Kafka, and yield both processes by name."""
    where = tmp_path_factory.mktemp("both")
    with OttlaProcess(where / "ottla") as ours, KafkaProcess(where / "kafka") as kafka:
        yield {"ottla": ours, "kafka": kafka}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_spark_rows_under_transactions_equal_kafka(
    spark: SparkSession,
    both: dict[str, NodeProcess],
    tmp_path: Path,
    scenario: Callable[[SparkSession, str, Path], Any],
) -> None:
    rows = {}
    for name, node in both.items():
        (tmp_path / name).mkdir()
        rows[name] = scenario(spark, node.bootstrap, tmp_path / name)
    assert rows["ottla"] == rows["kafka"], "the same rows at the same offsets"
