"""Pipelines: the result of each equals what plain Python computes from the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.support.processes import OttlaProcess
from spark_it.pipelines.pipeline import NAMES, PipelineJob, create_topics, load, skip_wait

pytestmark = pytest.mark.xdist_group("spark")
BATCHES = 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data") as process:
        yield process.bootstrap
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.mark.parametrize("name", [*NAMES, "template"])
def test_pipeline_result_equals_plain_python(spark: SparkSession, servers: str, tmp_path: Path, name: str) -> None:
    pipeline = load(name)
    records = list(pipeline.make_input(pipeline.test_size, skip_wait))
    create_topics(servers, pipeline)
    pipeline.send(servers, records)
    result = pipeline.run(PipelineJob(spark, servers, str(tmp_path), len(records) // BATCHES))
    expected = pipeline.expected(records)
    assert expected, "the input is too small"
    assert result == expected
    assert pipeline.show(result)
