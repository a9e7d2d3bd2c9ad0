"""Data source ``ottla-log`` on a tiered topic of a real node: its rows equal those of Spark's Kafka connector."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import ottla
from compat_tests.support.object_stores import object_store
from compat_tests.support.raw_client import RawClient, wait_until
from spark_it.test_spark_tiered import local_start

pytestmark = pytest.mark.xdist_group("spark")
TOPIC = "tiered"
RECORDS = 2000
SEGMENT_BYTES = 50_000
RECORDS_OF_TRANSACTION = 100
AFTER_MARKERS_MS = 600_000
SETTINGS = {
    "remote.log.storage.system.enable": True,
    "remote.log.manager.task.interval.ms": 200,
    "log.retention.check.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
}
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(2 * SEGMENT_BYTES),
    "retention.ms": "-1",
}
COMMITTED = {"kafka.isolation.level": "read_committed"}


class TieredTopic(NamedTuple):
    """Address of a node with a tiered topic, its data directory, its store's directory and the first record's time.

    Transaction markers carry the time of the node's clock. The records are written within `AFTER_MARKERS_MS` and have
    later timestamps, so that a lookup by a record's timestamp finds no marker.
    """

    bootstrap: str
    data_dir: Path
    store: Path
    first_ms: int


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredTopic]:
    """Return a tiered topic on a node that runs until the end of the module's tests."""
    first_ms = int(time.time() * 1000) + AFTER_MARKERS_MS
    folder = tmp_path_factory.mktemp("tiered")
    with object_store(folder, s3=False) as (_, store):
        settings = {**SETTINGS, **store, "rsm.config.chunk.cache.path": f"{folder}/cache"}
        with ottla.Broker(settings=settings, data_dir=folder / "data") as node:
            node.client.create_topic(TOPIC, 1, settings=TIERED)
            fill(node.bootstrap_servers, first_ms)
            client = RawClient(node.port)
            wait_until(lambda: local_start(client, TOPIC) > RECORDS // 2)
            wait_until((folder / "data" / "replication-offset-checkpoint").exists)
            yield TieredTopic(node.bootstrap_servers, folder / "data", folder / "store", first_ms)


def fill(bootstrap: str, first_ms: int) -> None:
    """Write transactions over several segments and abort every third; record n has the timestamp first_ms + n."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TOPIC, "compression.type": "lz4"})
    producer.init_transactions(120)
    for first in range(0, RECORDS, RECORDS_OF_TRANSACTION):
        producer.begin_transaction()
        for number in range(first, first + RECORDS_OF_TRANSACTION):
            headers = None if number % 3 else [("n", b"%d" % number), ("x", None)]
            producer.produce(TOPIC, os.urandom(200), b"k%d" % number, timestamp=first_ms + number, headers=headers)
            if number % 20 == 0:
                assert producer.flush(60) == 0
        if first // RECORDS_OF_TRANSACTION % 3 == 1:
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)


def read(spark: SparkSession, source: str, options: dict[str, Any]) -> DataFrame:
    """Return a batch read of the topic."""
    reader = spark.read.format(source).options(subscribe=TOPIC, includeHeaders="true", **options)
    return reader.load()


def rows_of(frame: DataFrame) -> list[str]:
    """Return the rows as sorted texts."""
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize("isolation", [{}, COMMITTED], ids=["uncommitted", "committed"])
def test_rows_of_tiered_topic_equal_those_of_the_connector(
    spark: SparkSession, tiered: TieredTopic, isolation: dict[str, str]
) -> None:
    bootstrap, data_dir, store, first_ms = tiered
    tiers = {"logDirs": str(data_dir), "remoteStore": store.as_uri(), **isolation}
    kafka = {"kafka.bootstrap.servers": bootstrap, **isolation}
    expected = rows_of(read(spark, "kafka", kafka))
    wait_until(lambda: read(spark, "ottla-log", tiers).count() == len(expected))
    assert rows_of(read(spark, "ottla-log", tiers)) == expected
    between = {"startingTimestamp": first_ms + RECORDS // 5, "endingTimestamp": first_ms + RECORDS - 50}
    rows = rows_of(read(spark, "ottla-log", tiers | between))
    assert rows == rows_of(read(spark, "kafka", kafka | between))
    assert 0 < len(rows) < len(expected)
    alone = read(spark, "ottla-log", {"remoteStore": store.as_uri(), **isolation})
    copied = rows_of(alone)
    assert len(copied) > len(expected) // 2
    assert copied == [row for row in expected if row in set(copied)]
    assert alone.agg({"offset": "min"}).collect() == read(spark, "kafka", kafka).agg({"offset": "min"}).collect()
