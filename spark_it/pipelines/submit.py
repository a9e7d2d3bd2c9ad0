"""Command lines with which spark-submit runs the pipelines, and the environment for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_it.pipelines.pipeline import CONNECTOR, Pipeline

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
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
