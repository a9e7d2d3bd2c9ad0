"""Test of options of Spark's Kafka source that change its requests: the same rows from Ottla and from Kafka.

A job is a function of a Spark session, a cluster and a prefix for its topics. It runs on both clusters; its results
must be equal, and right.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.support.raw_client import wait_until

pytestmark = pytest.mark.xdist_group("spark")
WAIT_S = 600
# Recent enough to survive retention.
BASE_MS = time.time_ns() // 10**9 * 1000 - 3_600_000
Rows = list[tuple[Any, ...]]


class SparkTestCluster:
    """Cluster on which a job of the tests runs: its clients, a folder for files, and a prefix for its topics."""

    def __init__(self, bootstrap: str, folder: Path, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})

    def create(self, name: str, partitions: int = 2) -> str:
        topic = f"{self.prefix}-{name}"
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WAIT_S)

    def send(self, topic: str, count: int, partitions: int = 2, first: int = 0, *, nulls: bool = False) -> None:
        """Produce records with numbers from ``first`` on, and wait for their acknowledgements.

        Record i goes to partition i mod ``partitions``, with a timestamp i seconds after BASE_MS. With ``nulls`` some
        keys and values are null.
        """
        self.producer.list_topics(topic, WAIT_S)  # the topic may have got more partitions
        for i in range(first, first + count):
            key = None if nulls and i % 2 else b"k%d" % i
            value = None if nulls and i % 3 == 0 else b"v%d" % i
            self.producer.produce(topic, value, key, i % partitions, timestamp=BASE_MS + 1000 * i)
        assert self.producer.flush(WAIT_S) == 0

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value if isinstance(value, str) else json.dumps(value))
        return reader.load()

    def stream(self, spark: SparkSession, name: str, trigger: dict[str, Any], **options: Any) -> Any:
        """Start a query that appends topic, partition, offset and value of records to files of ``name``; return it.

        Its checkpoint has that name, too; so a later query continues where this one ended.
        """
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        for option, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(option, value if isinstance(value, str) else json.dumps(value))
        rows = reader.load().selectExpr("topic", "partition", "offset", "cast(value as string) value")
        return (
            rows.writeStream.format("parquet")
            .option("path", str(self.folder / name))
            .option("checkpointLocation", str(self.folder / f"{name}-mark"))
            .trigger(**trigger)
            .start()
        )

    def go_on_after_a_loss(self, spark: SparkSession, name: str, topic: str) -> None:
        """Verify that stream ``name`` fails on lost records, then run it to its end with failOnDataLoss=false."""
        strict = self.stream(spark, name, {"availableNow": True}, subscribe=topic)
        with pytest.raises(Exception, match=r"(?s)data|offset"):
            strict.awaitTermination(WAIT_S)
        lax = self.stream(spark, name, {"availableNow": True}, subscribe=topic, failOnDataLoss="false")
        lax.awaitTermination(WAIT_S)

    def kept(self, spark: SparkSession, name: str) -> Rows:
        """Return the rows that the stream ``name`` has written so far, as `plain` rows."""
        rows = spark.read.parquet(str(self.folder / name)).selectExpr("topic", "partition", "offset", "value").collect()
        return self.plain(rows)

    def plain(self, rows: list[Any]) -> Rows:
        """Return rows as sorted tuples, with bytes for bytearrays and topics without the cluster's prefix."""
        out = []
        for row in rows:
            values = [x.replace(f"{self.prefix}-", "") if isinstance(x, str) else x for x in row]
            out.append(tuple(bytes(x) if isinstance(x, bytearray) else x for x in values))
        return sorted(out, key=repr)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, Path]]]:
    folder = tmp_path_factory.mktemp("both")
    (folder / "o").mkdir()
    (folder / "k").mkdir()
    with OttlaProcess(folder / "ottla") as ottla, KafkaProcess(folder / "kafka") as kafka:
        yield {"ottla": (ottla.bootstrap, folder / "o"), "kafka": (kafka.bootstrap, folder / "k")}
    assert "Traceback" not in ottla.log.read_text(), ottla.log.read_text()


Job = Callable[[SparkSession, SparkTestCluster], Any]


@pytest.fixture
def both(
    spark: SparkSession, clusters: dict[str, tuple[str, Path]], request: pytest.FixtureRequest
) -> Callable[[Job], Any]:
    """Return a function that runs a job on both clusters, checks that the results are equal, and returns the result."""
    prefix = request.node.name.replace("_", "-")[:60]

    def run(job: Job) -> Any:
        results = {}
        for name, (bootstrap, folder) in clusters.items():
            (folder / prefix).mkdir()
            results[name] = job(spark, SparkTestCluster(bootstrap, folder / prefix, prefix))
        assert results["ottla"] == results["kafka"]
        return results["ottla"]

    return run


def values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def names(*numbers: int) -> list[str]:
    return sorted(f"v{n}" for n in numbers)


def test_batch_with_offset_options_reads_the_range(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 20)
        return {
            "all": values(c.read(spark, subscribe=topic)),
            "middle": values(
                c.read(
                    spark,
                    subscribe=topic,
                    startingOffsets={topic: {"0": 3, "1": -2}},
                    endingOffsets={topic: {"0": 7, "1": 2}},
                )
            ),
            "assigned": values(c.read(spark, assign={topic: [1]}, startingOffsets="earliest", endingOffsets="latest")),
            "to the end": values(c.read(spark, subscribe=topic, startingOffsets={topic: {"0": 9, "1": 9}})),
        }

    found = both(job)
    assert found["all"] == names(*range(20))
    assert found["middle"] == names(6, 8, 10, 12, 1, 3)
    assert found["assigned"] == names(*range(1, 20, 2))
    assert found["to the end"] == names(18, 19)


def test_batch_with_timestamp_options_reads_the_range(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 20)
        at = {"0": BASE_MS + 5500, "1": BASE_MS + 11_000}
        late = {"0": BASE_MS + 10**7, "1": BASE_MS + 10**7}
        out = {
            "from": values(c.read(spark, subscribe=topic, startingOffsetsByTimestamp={topic: at})),
            "to": values(c.read(spark, subscribe=topic, endingOffsetsByTimestamp={topic: at})),
            "global": values(c.read(spark, subscribe=topic, startingTimestamp=str(BASE_MS + 17_000))),
            "beyond": values(
                c.read(
                    spark,
                    subscribe=topic,
                    startingOffsetsByTimestamp={topic: late},
                    startingOffsetsByTimestampStrategy="latest",
                )
            ),
        }
        with pytest.raises(Exception, match=r"(?s)[Nn]o offset matched|matched"):
            c.read(spark, subscribe=topic, startingOffsetsByTimestamp={topic: late}).collect()
        return out

    found = both(job)
    assert found["from"] == names(6, 8, 10, 12, 14, 16, 18, 11, 13, 15, 17, 19)
    assert found["to"] == names(0, 2, 4, 1, 3, 5, 7, 9)
    assert found["global"] == names(17, 18, 19)
    assert found["beyond"] == []


def test_batch_with_min_partitions_above_partitions_reads_each_record_once(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 500)
        rows = c.read(spark, subscribe=topic, minPartitions="7", includeHeaders="true")
        return rows.rdd.getNumPartitions() >= 7, len(values(rows)), len(set(values(rows)))

    assert both(job) == (True, 500, 500)


def test_null_keys_and_values_stay_null_in_read_and_write(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 30, nulls=True)
        rows = c.read(spark, subscribe=topic).selectExpr("partition", "offset", "key", "value", "timestampType")
        (
            c.read(spark, subscribe=topic)
            .selectExpr("key", "value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", c.bootstrap)
            .option("topic", c.create("back", 1))
            .save()
        )
        back = c.read(spark, subscribe=f"{c.prefix}-back").selectExpr("key", "value")
        return c.plain(rows.collect()), c.plain(back.collect())

    first, back = both(job)
    assert len(first) == len(back) == 30
    assert sum(row[2] is None for row in first) == sum(row[0] is None for row in back) == 15
    assert sum(row[3] is None for row in first) == 10


def test_batch_with_subscribe_pattern_reads_matching_topics(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        for number in range(40):
            c.send(c.create(f"small-{number}", 1), 3, partitions=1, first=3 * number)
        c.send(c.create("other", 1), 5, partitions=1, first=900)
        rows = c.read(spark, subscribePattern=f"{c.prefix}-small-.*")
        return c.plain(rows.selectExpr("topic", "partition", "offset", "cast(value as string) v").collect())

    rows = both(job)
    assert sorted(row[3] for row in rows) == names(*range(120))


def test_stream_with_subscribe_pattern_finds_new_topics_and_partitions(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        first = c.create("in-1", 1)
        c.send(first, 5, partitions=1)
        query = c.stream(
            spark,
            "out",
            {"processingTime": "200 milliseconds"},
            subscribePattern=f"{c.prefix}-in-.*",
            **{"kafka.metadata.max.age.ms": "300"},
        )
        query.processAllAvailable()
        second = c.create("in-2", 1)
        c.send(second, 5, partitions=1, first=100)
        c.admin.create_partitions([NewPartitions(first, 2)])[first].result(WAIT_S)
        wait_until(lambda: len(c.admin.list_topics(first, WAIT_S).topics[first].partitions) == 2)
        c.send(first, 4, partitions=2, first=200)
        deadline = time.monotonic() + WAIT_S
        while len(c.kept(spark, "out")) < 14 and time.monotonic() < deadline:
            query.processAllAvailable()
            time.sleep(0.2)
        query.stop()
        return c.kept(spark, "out")

    rows = both(job)
    assert sorted(row[3] for row in rows) == names(*range(5), *range(100, 105), *range(200, 204))
    assert {row[:2] for row in rows} == {("in-1", 0), ("in-1", 1), ("in-2", 0)}


def test_stream_with_max_offsets_per_trigger_limits_its_batches(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 100)
        query = c.stream(spark, "out", {"availableNow": True}, subscribe=topic, maxOffsetsPerTrigger="30")
        query.awaitTermination(WAIT_S)
        sizes = [p.numInputRows for p in query.recentProgress if p.numInputRows]
        return sizes, c.kept(spark, "out")

    sizes, rows = both(job)
    assert sum(sizes) == len(rows) == 100
    assert max(sizes) <= 30


def test_batch_with_read_committed_reads_all_records(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        c.send(topic, 10)
        rows = c.read(spark, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        return values(rows)

    assert both(job) == names(*range(10))


def test_stream_with_deleted_records_fails_or_skips_them(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t", 1)
        c.send(topic, 20, partitions=1)
        query = c.stream(spark, "out", {"availableNow": True}, subscribe=topic, maxOffsetsPerTrigger="5")
        query.awaitTermination(WAIT_S)
        c.send(topic, 20, partitions=1, first=20)
        place = TopicPartition(topic, 0, 30)
        c.admin.delete_records([place])[place].result(WAIT_S)
        c.go_on_after_a_loss(spark, "out", topic)
        return c.kept(spark, "out")

    rows = both(job)
    assert sorted(row[3] for row in rows) == names(*range(20), *range(30, 40))


def test_stream_with_recreated_topic_fails_or_reads_it(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t", 1)
        c.send(topic, 20, partitions=1)
        c.stream(spark, "out", {"availableNow": True}, subscribe=topic).awaitTermination(WAIT_S)
        c.delete(topic)
        time.sleep(1)
        c.create("t", 1)
        c.send(topic, 5, partitions=1, first=50)
        time.sleep(0.5)
        c.go_on_after_a_loss(spark, "out", topic)
        return len(c.kept(spark, "out"))

    assert both(job) in (20, 25), "Spark itself decides whether it reads the new topic from its beginning"


def test_stream_with_processing_time_trigger_reads_all_records(both: Callable[[Job], Any]) -> None:
    def job(spark: SparkSession, c: SparkTestCluster) -> Any:
        topic = c.create("t")
        query = c.stream(spark, "out", {"processingTime": "100 milliseconds"}, subscribe=topic)
        writer = threading.Thread(target=lambda: [c.send(topic, 50, first=50 * n) for n in range(6)])
        writer.start()
        writer.join()
        query.processAllAvailable()
        query.stop()
        return c.kept(spark, "out")

    rows = both(job)
    assert sorted(row[3] for row in rows) == names(*range(300))
