"""Test of Spark's streaming source against three nodes that are restarted in turn, and one of them killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ottla
from compat_tests.cluster.test_three_nodes import all_in_sync, make_topic, wait_for
from compat_tests.support.number_writer import NumberWriter
from spark_it.test_spark import checksum, stream, values_of

pytestmark = pytest.mark.xdist_group("spark")
RATE = 300


def record(number: int) -> dict[str, Any]:
    """Return value and key of test record ``number``, as arguments of the producer."""
    return {"value": b"value %d" % number, "key": b"k%d" % (number % 100)}


def test_stream_over_restarts_and_kill_of_nodes_reads_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, "t")
        writer = NumberWriter(bootstrap, "t", record, pause_s=1 / RATE)
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
            writer.stop()
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None
    assert writer.refused == []
    written = [record(number)["value"] for number in range(writer.sent)]
    assert checksum(values_of(spark.read.parquet(out))) == checksum(written)
