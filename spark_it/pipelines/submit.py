"""Command lines with which spark-submit runs the pipelines, and the environment for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_it.pipelines.pipeline import CONNECTOR, Pipeline

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
TRIES = 3
PYTHONS = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}


def script(pipeline: Pipeline) -> Path:
    """Return the path of the Python script of a pipeline."""
    return Path(__file__).with_name(f"{pipeline.name.replace('-', '_')}.py")


def packages(pipeline: Pipeline) -> str:
    """Return the Maven coordinates that a pipeline needs, separated by commas, as for ``--packages``."""
    return ",".join([CONNECTOR, *pipeline.packages])


def fetch_packages(coordinates: str, cache: Path) -> str:
    """Fetch Maven packages into a directory for ``spark.jars.ivy``; return the end of the error, empty without one.

    ``coordinates``: as for ``--packages``. A failed attempt is repeated twice.
    """
    code = (
        "from pyspark.sql import SparkSession; "
        f"SparkSession.builder.master('local[1]').config('spark.jars.packages', '{coordinates}')"
        f".config('spark.jars.ivy', '{cache}').getOrCreate().stop()"
    )
    for _ in range(TRIES):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if not done.returncode:
            return ""
    return done.stderr[-300:] or f"status {done.returncode}"


def environment() -> dict[str, str]:
    """Return this process's environment with ``PATH``, ``PYTHONPATH`` and Python's path set for spark-submit.

    ``PATH`` begins with the directory of spark-submit, ``PYTHONPATH`` is the root of the modules. Spark uses this
    Python.
    """
    return {**os.environ, **PYTHONS, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def submit_command(
    pipeline: Pipeline,
    master: str,
    bootstrap: str,
    folder: Path,
    records_per_trigger: int,
    settings: Mapping[str, str],
    jars: Sequence[Path] = (),
) -> list[str]:
    """Return the spark-submit command of a pipeline, which writes its result to ``result.json`` in the folder.

    Args:
        pipeline: the pipeline.
        master: ``local[2]`` or ``spark://HOST:PORT``.
        bootstrap: addresses of brokers.
        folder: folder for checkpoints and files.
        records_per_trigger: largest number of records of a batch.
        settings: settings of Spark besides `SETTINGS`.
        jars: jars of connector and packages; without them Spark fetches the packages.
    """
    command = [str(BIN / "spark-submit"), "--master", master]
    command += ["--jars", ",".join(map(str, jars))] if jars else ["--packages", packages(pipeline)]
    for name, value in {**SETTINGS, **settings}.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(script(pipeline)), "--bootstrap", bootstrap, "--folder", str(folder)]
    return [
        *command,
        "--records-per-trigger",
        str(records_per_trigger),
        "--result",
        str(folder / "result.json"),
    ]
