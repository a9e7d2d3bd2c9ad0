"""Fixtures of the Spark tests: a Spark session for the run, a node of Ottla for a module, a topic name for a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from compat_tests.support.processes import OttlaProcess
from spark_it.ottla_log.build_jar import build_jar
from spark_it.pipelines.session import local_session

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark session of all tests, with the data source."""
    session = local_session("spark_it", tmp_path_factory.mktemp("spark"), [build_jar()])
    yield session
    session.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """Node of the module, which must end without a traceback in its log."""
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data") as process:
        yield process
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.fixture
def topic() -> str:
    """Name of a topic that no other test uses."""
    return f"spark-{next(_numbers)}"
