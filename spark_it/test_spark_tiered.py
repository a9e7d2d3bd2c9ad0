"""Test of Spark's Kafka source on a topic with older segments only in the remote store, an S3-compatible server."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ottla
from compat_tests.support.object_stores import object_store
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import list_offsets
from spark_it.test_spark import batch, checksum, send, stream, values_of

pytestmark = pytest.mark.xdist_group("spark")
SEGMENT_BYTES = 100_000
RECORDS = 20_000
EARLIEST_LOCAL = -4


def local_start(client: RawClient, topic: str) -> int:
    """Return the local log start offset of partition 0."""
    wanted = [list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(0, -1, EARLIEST_LOCAL)])]
    answer = client.call(ApiKey.LIST_OFFSETS, 11, list_offsets.ListOffsetsRequest(topics=wanted))
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_batch_and_streaming_jobs_read_a_tiered_topic(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with object_store(tmp_path, s3=True) as (_, store):
        settings = {
            "remote.log.storage.system.enable": True,
            "rsm.config.chunk.cache.path": f"{tmp_path}/cache",
            "remote.log.manager.task.interval.ms": 200,
            "log.retention.check.interval.ms": 300,
            "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
            **store,
        }
        with ottla.Broker(settings=settings) as node:
            tiering = {
                "remote.storage.enable": "true",
                "internal.segment.bytes": str(SEGMENT_BYTES),
                "local.retention.bytes": str(2 * SEGMENT_BYTES),
                "retention.ms": "-1",
            }
            node.client.create_topic(topic, 1, settings=tiering)
            written = [b"value %d " % i * 10 for i in range(RECORDS)]
            send(node.bootstrap_servers, topic, written, **{"batch.num.messages": 500})
            client = RawClient(node.port)
            wait_until(lambda: local_start(client, topic) > RECORDS // 2)
            assert checksum(values_of(batch(spark, node.bootstrap_servers, topic))) == checksum(written)
            out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
            query = (
                stream(spark, node.bootstrap_servers, topic, maxOffsetsPerTrigger=7000)
                .select("value")
                .writeStream.format("parquet")
                .option("path", out)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(900)
            assert query.exception() is None
            assert checksum(values_of(spark.read.parquet(out))) == checksum(written)
