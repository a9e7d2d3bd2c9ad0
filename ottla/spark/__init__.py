"""Spark data source ``ottla-log``: reads the log directories of Ottla and Apache Kafka without a broker.

The source is a jar within this package; `log_source` adds it to a session. PySpark is not installed with Ottla: it is
the extra ``spark``.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = Path(__file__).with_name("ottla-log.jar")
"""Jar of the data source: part of the wheel, and built by ``make jar`` in a source tree."""
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_SEPARATOR = ","


def log_source(builder: SparkSession.Builder, *, connector: bool = True) -> SparkSession.Builder:
    """Add the data source ``ottla-log`` to the builder of a session, which is changed and returned.

    Args:
        builder: The builder; its jars and packages are kept.
        connector: Add Spark's Kafka connector of the installed PySpark too, whose ``kafka-clients`` the source needs.
            With False, the session must have it from elsewhere.

    Raises:
        FileNotFoundError: the jar is missing: in a source tree, ``make jar`` builds it.
    """
    if not JAR.is_file():
        raise FileNotFoundError(f"No {JAR}: build it with make jar, or install the wheel")
    _append(builder, "spark.jars", str(JAR))
    if connector:
        _append(builder, "spark.jars.packages", f"{_CONNECTOR}:{version('pyspark')}")
    return builder


def _append(builder: SparkSession.Builder, key: str, entry: str) -> None:
    """Append an entry to a setting of the builder that is a list with commas, unless the list has it."""
    options: dict[str, Any] = getattr(builder, "_options", {})
    entries = [text for text in str(options.get(key, "")).split(_SEPARATOR) if text]
    builder.config(key, _SEPARATOR.join(dict.fromkeys([*entries, entry])))
