"""Test of failures that pipelines meet: a lost commit, a lost checkpoint, missing and recreated topics, full disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from compat_tests.support.processes import OttlaProcess
from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    create_topics,
    load,
    send,
    skip_wait,
)

pytestmark = pytest.mark.xdist_group("spark")
NAMES = (
    ["activity", "metrics", "logs", "events", "replay", "joins", "lake", "exactly-once"]
    if os.environ.get("OTTLA_PIPELINES") == "all"
    else ["exactly-once"]
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data") as process:
        yield process.bootstrap


def lose_last_commit(checkpoint: Path) -> None:
    """Delete the commit of the last batch from a checkpoint, as if the driver had died between output and commit."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()


@pytest.mark.parametrize("name", NAMES)
def test_pipeline_repeats_a_batch_and_then_everything_without_change(
    spark: SparkSession, servers: str, tmp_path: Path, name: str
) -> None:
    pipeline = load(name)
    size = pipeline.test_size // 2
    records = list(pipeline.make_input(size, skip_wait))
    create_topics(servers, pipeline)
    pipeline.send(servers, records)
    job = PipelineJob(spark, servers, str(tmp_path / "first"), -(-len(records) // 3))
    expected = pipeline.expected(records)
    assert pipeline.run(job) == expected
    for checkpoint in (tmp_path / "first" / "checkpoint").iterdir():
        lose_last_commit(checkpoint)
    assert pipeline.run(job) == expected, "after a repeated batch"
    if name == "exactly-once":
        shutil.rmtree(tmp_path / "first" / "checkpoint")
        assert pipeline.run(job) == expected, "after the loss of the checkpoint"


def test_missing_topic_fails_the_query(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    job = PipelineJob(spark, servers, str(tmp_path), 1000)
    with pytest.raises(StreamingQueryException, match="UnknownTopicOrPartition"):
        job.start_to_topic(job.read_stream("no-such-topic"), "nowhere").awaitTermination()


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_topic_deleted_under_a_running_stream_fails_the_query(
    spark: SparkSession, servers: str, tmp_path: Path, fail_on_data_loss: str
) -> None:
    job, admin = PipelineJob(spark, servers, str(tmp_path), 1000), AdminClient({"bootstrap.servers": servers})
    create_topics(servers, single_topic("deleted"))
    send(servers, [InputRecord("deleted", b"value")])
    query = (
        job.read_stream("deleted", failOnDataLoss=fail_on_data_loss)
        .writeStream.format("parquet")
        .option("checkpointLocation", job.path("checkpoint"))
        .start(job.path("out"))
    )
    query.processAllAvailable()
    admin.delete_topics(["deleted"])["deleted"].result(120)
    with pytest.raises(StreamingQueryException, match="UnknownTopicOrPartition"):
        query.awaitTermination(300)
    assert spark.read.parquet(job.path("out")).count() == 1


def single_topic(name: str) -> Pipeline:
    """Return the template pipeline with topic ``name`` of one partition as its only topic."""
    return Pipeline(**{**vars(load("template")), "topics": (PipelineTopic(name, 1),)})


def test_recreated_topic_is_read_on_from_the_old_offset(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    job = PipelineJob(spark, servers, str(tmp_path), 1000)
    for first, count in ((0, 40), (1000, 60)):
        create_topics(servers, single_topic("recreated"))
        send(servers, (InputRecord("recreated", b"%d" % (first + number)) for number in range(count)))
        values = job.read_stream("recreated").selectExpr("cast(cast(value as string) as long) as number")
        job.start(values.writeStream.format("parquet").option("path", job.path("out")), "out").awaitTermination()
    numbers = sorted(row.number for row in spark.read.parquet(job.path("out")).collect())
    assert numbers == [*range(40), *range(1040, 1060)], "Spark skips the first 40 records of the new topic"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MiB and yield its folder; the test is skipped if that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(mounted.stderr.decode())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path) -> None:
    """Write a new file until the file system is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_full_disk_at_the_checkpoint_fails_the_query_that_then_goes_on(
    spark: SparkSession, servers: str, small_disk: Path
) -> None:
    pipeline = load("template")
    records = list(pipeline.make_input(300, skip_wait))
    create_topics(servers, pipeline)
    job = PipelineJob(spark, servers, str(small_disk), 1000)
    send(servers, records[:200])
    assert pipeline.run(job) == pipeline.expected(records[:200])
    send(servers, records[200:])
    filler = small_disk / "filler"
    fill(filler)
    with pytest.raises(StreamingQueryException, match="No space left"):
        pipeline.run(job)
    filler.unlink()
    assert pipeline.run(job) == pipeline.expected(records)
