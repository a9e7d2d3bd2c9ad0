"""Test of pipelines on three nodes and a standalone Spark cluster, while a worker, a broker and the driver are killed.

One pipeline by default; ``OTTLA_PIPELINES=all`` runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from spark_it.pipelines.cluster import run_pipeline
from spark_it.pipelines.pipeline import NAMES, load
from spark_it.pipelines.standalone import StandaloneSpark

pytestmark = pytest.mark.xdist_group("spark")
SAMPLE = ["exactly-once"]
IS_CAMPAIGN = os.environ.get("OTTLA_PIPELINES") == "all"
SIZE = 8_000 if IS_CAMPAIGN else 1_600


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneSpark, ottla.Cluster]]:
    with ottla.Cluster(3) as nodes, StandaloneSpark(tmp_path_factory.mktemp("spark")) as spark:
        yield spark, nodes


@pytest.mark.parametrize("name", NAMES if IS_CAMPAIGN else SAMPLE)
def test_pipeline_under_kills_of_worker_broker_and_driver_equals_plain_python(
    clusters: tuple[StandaloneSpark, ottla.Cluster], tmp_path: Path, name: str
) -> None:
    spark, nodes = clusters
    pipeline = load(name)
    result, records = run_pipeline(pipeline, spark, nodes, tmp_path / "job", SIZE, kill=True)
    expected = pipeline.expected(records)
    assert expected, "the input is too small"
    assert result == expected
