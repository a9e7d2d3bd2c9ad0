"""Spark's streaming source against three nodes that are restarted in turn, and one of them killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import ottla
from compat_tests.cluster.test_three_nodes import all_in_sync, make_topic, wait_for
from spark_it.test_spark import checksum, stream, values_of

pytestmark = pytest.mark.xdist_group("spark")
RATE = 300


def test_a_stream_reads_everything_once_while_nodes_are_restarted_and_one_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, written, ended = str(tmp_path / "out"), [], threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
        while not ended.is_set():
            written.append(b"value %d" % len(written))
            producer.produce("t", written[-1], b"k%d" % (len(written) % 100))
            producer.poll(1 / RATE)
        assert producer.flush(180) == 0

    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, "t")
        writer = threading.Thread(target=write)
        writer.start()
        query = (
            stream(spark, bootstrap, "t")
            .select("value")
            .writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            wait_for(lambda: len(query.recentProgress) > 2)
            for node in (1, 2, 3):
                cluster.restart(node)
                wait_for(lambda: all_in_sync(bootstrap, "t"))
            cluster.kill(2)
            time.sleep(3)
            cluster.restart(2)
            wait_for(lambda: all_in_sync(bootstrap, "t"))
        finally:
            ended.set()
            writer.join()
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None
    assert checksum(values_of(spark.read.parquet(out))) == checksum(written)
