"""Fixtures: one local Spark for the run, one node for a module."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from compat_tests.support.jars import jars
from compat_tests.support.processes import OttlaProcess
from spark_it.pipelines.pipeline import load

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    where = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder
    for name, value in load("lake").settings.items():  # fixed when the session starts
        builder = builder.config(name, value)
    session = (
        builder.master("local[2]")
        .appName("spark_it")
        .config("spark.jars", ",".join(map(str, [*jars("spark"), *jars("lake")])))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(where))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data") as process:
        yield process
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.fixture
def topic() -> str:
    return f"spark-{next(_numbers)}"
