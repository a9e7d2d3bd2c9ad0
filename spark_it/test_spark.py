"""Test of Spark's Kafka source and sink, unmodified: output and input are equal in count and checksum."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession, functions

from compat_tests.support.processes import OttlaProcess

pytestmark = pytest.mark.xdist_group("spark")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def create(bootstrap: str, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)


def checksum(values: Iterable[bytes]) -> tuple[int, str]:
    """Return the number of values, and a SHA-256 of them that does not depend on their order."""
    items = sorted(values)
    return len(items), hashlib.sha256(b"\x00".join(items)).hexdigest()


def send(bootstrap: str, topic: str, values: list[bytes], codec: str = "none", **settings: Any) -> None:
    common = {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
    producer = Producer({**common, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k%d" % (number % 100), headers=[("n", b"%d" % number)])
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(180) == 0


def batch(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: Any) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def values_of(rows: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in rows.select("value").collect()]


@pytest.mark.parametrize("codec", CODECS)
def test_batch_job_reads_all_records_with_headers(
    spark: SparkSession, node: OttlaProcess, topic: str, codec: str
) -> None:
    create(node.bootstrap, topic)
    written = [b"value %d " % i * (1 + i % 20) for i in range(5000)]
    send(node.bootstrap, topic, written, codec)
    rows = batch(spark, node.bootstrap, topic).cache()
    assert checksum(values_of(rows)) == checksum(written)
    headers = {(row.headers[0]["key"], int(bytes(row.headers[0]["value"]))) for row in rows.collect()}
    assert headers == {("n", i) for i in range(5000)}
    rows.unpersist()


@pytest.mark.parametrize("codec", CODECS)
def test_batch_job_writes_records_with_keys_and_headers(
    spark: SparkSession, node: OttlaProcess, topic: str, codec: str
) -> None:
    create(node.bootstrap, topic)
    rows = spark.range(3000).select(
        functions.concat(functions.lit("k"), functions.col("id") % 10).alias("key"),
        functions.concat(functions.lit("row "), "id").alias("value"),
        functions.array(
            functions.struct(functions.lit("origin").alias("key"), functions.lit(b"spark").alias("value"))
        ).alias("headers"),
    )
    (
        rows.write.format("kafka")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("kafka.compression.type", codec)
        .option("includeHeaders", "true")
        .option("topic", topic)
        .save()
    )
    back = batch(spark, node.bootstrap, topic)
    assert checksum(values_of(back)) == checksum(b"row %d" % i for i in range(3000))
    assert back.filter(functions.expr("headers[0].key = 'origin'")).count() == 3000


def test_stream_with_available_now_reads_each_record_once_and_resumes(
    spark: SparkSession, node: OttlaProcess, topic: str, tmp_path: Path
) -> None:
    create(node.bootstrap, topic)
    out, mark = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    written: list[bytes] = []
    for turn in range(2):
        fresh = [b"turn %d value %d" % (turn, i) for i in range(4000)]
        send(node.bootstrap, topic, fresh, "lz4")
        written += fresh
        query = (
            stream(spark, node.bootstrap, topic, maxOffsetsPerTrigger=1500)
            .select("value")
            .writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", mark)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(900)
        assert query.exception() is None
        assert checksum(values_of(spark.read.parquet(out))) == checksum(written)


def test_stream_over_kill_of_node_resumes_from_its_checkpoint(spark: SparkSession, tmp_path: Path, topic: str) -> None:
    node = OttlaProcess(tmp_path / "data").start()
    create(node.bootstrap, topic)
    out, mark = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    written = [b"value %d" % i for i in range(12_000)]
    writer = threading.Thread(target=send, args=(node.bootstrap, topic, written, "zstd"))
    writer.start()

    def start() -> Any:
        return (
            stream(spark, node.bootstrap, topic, maxOffsetsPerTrigger=1000)
            .select("value")
            .writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", mark)
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    query = start()
    deadline = time.monotonic() + 90
    while len(query.recentProgress) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    node.kill()
    time.sleep(0.5)
    node = OttlaProcess(tmp_path / "data", node.port).start()
    writer.join(180)
    query.processAllAvailable()
    query.stop()
    assert checksum(values_of(spark.read.parquet(out))) == checksum(written)
    send(node.bootstrap, topic, [b"after"], "none")
    again = start()
    again.processAllAvailable()
    again.stop()
    assert checksum(values_of(spark.read.parquet(out))) == checksum([*written, b"after"])
    assert node.stop() == 0


def test_stream_writes_all_records_to_topic(
    spark: SparkSession, node: OttlaProcess, topic: str, tmp_path: Path
) -> None:
    create(node.bootstrap, topic)
    create(node.bootstrap, f"{topic}-out")
    written = [b"v%d" % i for i in range(2000)]
    send(node.bootstrap, topic, written)
    query = (
        stream(spark, node.bootstrap, topic)
        .select("key", functions.upper(functions.col("value").cast("string")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", f"{topic}-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(900)
    back = batch(spark, node.bootstrap, f"{topic}-out")
    assert checksum(values_of(back)) == checksum(v.upper() for v in written)
