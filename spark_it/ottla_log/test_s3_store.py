"""Data source ``ottla-log`` on a store in S3, through Hadoop's file system ``s3a``.

``OTTLA_LOG_SOURCE_S3=1`` runs it, in a process of its own: the session needs jars of 546 MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.support.jars import jars
from compat_tests.support.object_stores import CREDENTIALS, object_store
from spark_it.ottla_log.build_jar import build_jar
from spark_it.ottla_log.log_directories import FIRST_TIMESTAMP_MS, batch_of
from spark_it.ottla_log.remote_segments import copy_segment
from spark_it.ottla_log.test_log_source import load, numbers, offsets
from spark_it.pipelines.session import local_session

pytestmark = [
    pytest.mark.xdist_group("spark-s3"),
    pytest.mark.skipif("OTTLA_LOG_SOURCE_S3" not in os.environ, reason="OTTLA_LOG_SOURCE_S3=1 runs it"),
]


@pytest.fixture
def s3_spark(tmp_path: Path) -> Iterator[SparkSession]:
    """Return a session with the file system of S3."""
    session = local_session("s3", tmp_path / "warehouse", [build_jar(), *jars("s3")])
    yield session
    session.stop()


def test_store_in_s3_is_read_by_offset_and_by_time(s3_spark: SparkSession, tmp_path: Path) -> None:
    with object_store(tmp_path, s3=True) as (objects, settings):
        for start in range(0, 3000, 1000):
            copy_segment(objects, tmp_path / "segments", [batch_of(at, 100) for at in range(start, start + 1000, 100)])
        hadoop = s3_spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("fs.s3a.endpoint", settings["rsm.config.store.endpoint"])
        hadoop.set("fs.s3a.endpoint.region", CREDENTIALS["region"])
        hadoop.set("fs.s3a.access.key", CREDENTIALS["access_key_id"])
        hadoop.set("fs.s3a.secret.key", CREDENTIALS["secret_access_key"])
        hadoop.set("fs.s3a.path.style.access", "true")
        store = "s3a://segments"
        assert offsets(load(s3_spark, remoteStore=store)) == numbers(range(3000))
        by_offset = load(
            s3_spark, remoteStore=store, startingOffsets='{"t":{"0":990}}', endingOffsets='{"t":{"0":2100}}'
        )
        assert offsets(by_offset) == numbers(range(990, 2100))
        by_time = load(s3_spark, remoteStore=store, startingTimestamp=FIRST_TIMESTAMP_MS + 1500)
        assert offsets(by_time) == numbers(range(1500, 3000))
