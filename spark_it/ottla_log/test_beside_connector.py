"""Test of data source ``ottla-log``: its rows equal those of Spark's Kafka connector, on the directory of a real node.

By default a sample on Ottla. ``OTTLA_LOG_SOURCE=1`` runs all codecs, compacted topics, and Apache Kafka, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.support.raw_client import wait_until

pytestmark = pytest.mark.xdist_group("spark")
IS_WHOLE = "OTTLA_LOG_SOURCE" in os.environ
NODES = {"ottla": OttlaProcess, "kafka": KafkaProcess} if IS_WHOLE else {"ottla": OttlaProcess}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"] if IS_WHOLE else ["lz4"]
RECORDS = 20_000 if IS_WHOLE else 300
FIRST_MS = int(time.time() * 1000) - 3_600_000
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}
COMPACTED = {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS = {"log_cleaner_backoff_ms": "100", "replica_high_watermark_checkpoint_interval_ms": "100"}
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module", params=NODES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Yield a running node that checkpoints high watermarks every 100 ms; it is stopped at the end."""
    with NODES[request.param](tmp_path_factory.mktemp(request.param) / "data", **SETTINGS) as process:
        yield process


def create(process: NodeProcess, topic: str, config: dict[str, str]) -> None:
    """Create a topic of two partitions with the settings ``config``, and wait for the response."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    made = NewTopic(topic, 2, 1, config=config)
    admin.create_topics([made])[topic].result(120)


def fill(process: NodeProcess, topic: str, codec: str, keys: int, *, null_keys: bool = True) -> None:
    """Produce `RECORDS` records with ``keys`` different keys and wait for their acknowledgements.

    Some have null keys, null values, and doubled, empty and null headers.
    """
    producer = Producer({"bootstrap.servers": process.bootstrap, "compression.type": codec, "linger.ms": 5})
    for number in range(RECORDS):
        value = None if number % 7 == 0 else os.urandom(60) * 3
        key = b"k%d" % (number % keys) if number % keys or not null_keys else None
        headers = None if number % 3 else [("n", b"%d" % number), ("x", None), ("n", b"")]
        producer.produce(topic, value, key, timestamp=FIRST_MS + number, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0


def transact(process: NodeProcess, topic: str) -> Producer:
    """Write three committed transactions, two aborted ones and an open one; return the producer of the open one."""
    for number in range(6):
        own = {"transactional.id": f"{topic}-{number}", "transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": process.bootstrap, **own})
        producer.init_transactions(120)
        producer.begin_transaction()
        for index in range(6):
            producer.produce(topic, b"%d-%d" % (number, index), partition=index % 2)
        assert producer.flush(120) == 0
        if number % 3 == 1:
            producer.abort_transaction(120)
        elif number < 5:
            producer.commit_transaction(120)
    return producer


def rows_of(frame: DataFrame) -> list[str]:
    """Return the rows of a frame as sorted texts, for comparison."""
    return sorted(map(repr, frame.collect()))


def by_connector(spark: SparkSession, process: NodeProcess, topic: str, **options: Any) -> list[str]:
    """Return the rows of a topic, with headers, that Spark's Kafka connector reads from the node."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", process.bootstrap).options(**options)
    return rows_of(reader.option("subscribe", topic).option("includeHeaders", "true").load())


def by_log_source(spark: SparkSession, process: NodeProcess, topic: str, **options: Any) -> list[str]:
    """Return the rows of a topic, with headers, that ``ottla-log`` reads from the node's log directory.

    The frame's ``count()`` must be equal to their number.
    """
    reader = spark.read.format("ottla-log").options(**options).option("subscribe", topic)
    frame = reader.option("includeHeaders", "true").load(str(process.data_dir))
    rows = rows_of(frame)
    assert frame.count() == len(rows)
    return rows


def wait_for_checkpoint(process: NodeProcess, topic: str, offsets: int) -> None:
    """Wait until the high watermarks of a topic's partitions in the checkpoint file have the sum ``offsets``."""

    def is_written() -> bool:
        path: Path = process.data_dir / "replication-offset-checkpoint"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(int(line.split()[2]) for line in lines if line.startswith(f"{topic} ")) == offsets

    wait_until(is_written)


@pytest.mark.parametrize("codec", CODECS)
def test_rows_and_time_ranges_of_a_codec_equal_those_of_the_connector(
    spark: SparkSession, running: NodeProcess, codec: str
) -> None:
    topic = f"codec-{codec}"
    create(running, topic, SMALL_SEGMENTS)
    fill(running, topic, codec, 11)
    wait_for_checkpoint(running, topic, RECORDS)
    assert by_log_source(spark, running, topic) == by_connector(spark, running, topic)
    between = {
        "startingTimestamp": str(FIRST_MS + RECORDS // 3),
        "endingTimestamp": str(FIRST_MS + RECORDS // 2),
    }
    rows = by_log_source(spark, running, topic, **between)
    assert rows == by_connector(spark, running, topic, **between)
    assert 0 < len(rows) <= RECORDS


def test_rows_of_transactions_equal_those_of_the_connector(spark: SparkSession, running: NodeProcess) -> None:
    create(running, "transactions", {})
    producer = transact(running, "transactions")
    wait_for_checkpoint(running, "transactions", 6 * 6 + 5 * 2)
    assert by_log_source(spark, running, "transactions") == by_connector(spark, running, "transactions")
    committed = by_log_source(spark, running, "transactions", **COMMITTED)
    assert committed == by_connector(spark, running, "transactions", **COMMITTED)
    assert len(committed) == 18
    del producer  # its transaction was open until here


@pytest.mark.skipif(not IS_WHOLE, reason="OTTLA_LOG_SOURCE=1 runs it")
def test_rows_of_compacted_topic_equal_those_of_the_connector(spark: SparkSession, running: NodeProcess) -> None:
    create(running, "compacted", COMPACTED)
    fill(running, "compacted", "zstd", 100, null_keys=False)
    fill(running, "compacted", "none", 100, null_keys=False)
    wait_for_checkpoint(running, "compacted", 2 * RECORDS)
    cleaned = running.data_dir / "cleaner-offset-checkpoint"
    wait_until(lambda: cleaned.exists() and "compacted" in cleaned.read_text())
    reader = spark.read.format("ottla-log").option("subscribe", "compacted").option("includeHeaders", "true")
    # The cleaner goes on: rows are equal once it has no more to do.
    wait_until(lambda: rows_of(reader.load(str(running.data_dir))) == by_connector(spark, running, "compacted"))
    assert len(by_log_source(spark, running, "compacted")) < 2 * RECORDS
