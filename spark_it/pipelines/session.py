"""Local Spark session for tests and measurements, with the jars and settings of all pipelines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from compat_tests.support.jars import jars
from spark_it.pipelines.pipeline import load
from spark_it.pipelines.submit import SETTINGS


def local_session(
    name: str, warehouse: Path, more_jars: Sequence[Path] = (), driver_memory: str | None = None
) -> SparkSession:
    """Start a local Spark session with two threads, the jars of the pipelines and ``more_jars``; the caller stops it.

    ``warehouse``: folder for tables. ``driver_memory``: heap of the JVM, as ``4g``; None for that of the pipelines.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(name)
    builder = builder.config("spark.jars", ",".join(map(str, [*jars("spark"), *jars("lake"), *more_jars])))
    for key, value in {**SETTINGS, **load("lake").settings}.items():  # fixed when the session starts
        builder = builder.config(key, value)
    if driver_memory is not None:
        builder = builder.config("spark.driver.memory", driver_memory)
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
