"""Test of the pipelines: the result of each equals what plain Python computes from the same input.

``OTTLA_PIPELINES=all`` runs them against Apache Kafka, too; ``OTTLA_ACTIVITY=10000000`` is the size of a large input.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from spark_it.pipelines.pipeline import NAMES, PipelineJob, create_topics, load, skip_wait

pytestmark = pytest.mark.xdist_group("spark")
BATCHES = 3
BROKERS = {"ottla": OttlaProcess, "kafka": KafkaProcess}
TESTED = BROKERS if os.environ.get("OTTLA_PIPELINES") == "all" else ["ottla"]
LARGE = int(os.environ.get("OTTLA_ACTIVITY", "0"))
MAX_RESIDENT_KIB = 150 * 1024
MAX_GROWTH = 2.2
"""Limit of the time for twice the records."""


@pytest.fixture(scope="module", params=TESTED)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process: NodeProcess = BROKERS[request.param](tmp_path_factory.mktemp("node") / "data")
    with process:
        yield process.bootstrap
    assert request.param == "kafka" or "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.mark.parametrize("name", [*NAMES, "template"])
def test_pipeline_result_equals_plain_python(spark: SparkSession, servers: str, tmp_path: Path, name: str) -> None:
    pipeline = load(name)
    records = list(pipeline.make_input(pipeline.test_size, skip_wait))
    create_topics(servers, pipeline)
    pipeline.send(servers, records)
    result = pipeline.run(PipelineJob(spark, servers, str(tmp_path), -(-len(records) // BATCHES)))
    expected = pipeline.expected(records)
    assert expected, "the input is too small"
    assert result == expected
    assert pipeline.show(result)


def peak_resident_kib(pid: int) -> int:
    """Return the largest resident memory of a process since its start, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


@pytest.mark.skipif(not LARGE, reason="a campaign: OTTLA_ACTIVITY is the number of records")
def test_activity_of_many_records_grows_with_the_input(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, seconds = load("activity"), []
    for size in (LARGE // 2, LARGE):
        with OttlaProcess(tmp_path / f"node-{size}") as node:
            create_topics(node.bootstrap, pipeline)
            pipeline.send(node.bootstrap, pipeline.make_input(size, skip_wait))
            since = time.monotonic()
            result = pipeline.run(PipelineJob(spark, node.bootstrap, str(tmp_path / f"job-{size}"), 500_000))
            seconds.append(time.monotonic() - since)
            assert result == pipeline.expected(pipeline.make_input(size, skip_wait))
            peak = peak_resident_kib(node.pid)
        print(f"{size} records: {seconds[-1]:.0f} s, {peak} KiB")
        assert peak <= MAX_RESIDENT_KIB
    assert seconds[1] <= MAX_GROWTH * seconds[0]
