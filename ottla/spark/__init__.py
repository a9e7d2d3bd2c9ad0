"""Spark data source ``ottla-log``: reads log directories and remote stores of tiered storage without a broker.

The source is a jar within this package; `log_source` adds it to a session. PySpark is not installed with Ottla: it is
the extra ``spark``.
"""

from __future__ import annotations

from importlib.metadata import files, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = Path(__file__).with_name("ottla-log.jar")
"""Jar of the data source: part of the wheel, and built by ``make jar`` in a source tree."""
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_HADOOP_AWS = "org.apache.hadoop:hadoop-aws"
_HADOOP_JAR = "hadoop-client-api-"
_SEPARATOR = ","


def log_source(
    builder: SparkSession.Builder, *, connector: bool = True, remote_store: str | None = None
) -> SparkSession.Builder:
    """Add the data source ``ottla-log`` to the builder of a session, which is changed and returned.

    Args:
        builder: The builder; its jars and packages are kept.
        connector: Add Spark's Kafka connector of the installed PySpark too; the source needs its
            ``kafka-clients``. With False, the session must have it from elsewhere.
        remote_store: Remote store of tiered storage that the session reads by default: the option ``remoteStore``. For
            a URL that begins with ``s3a:``, the package ``hadoop-aws`` of PySpark's Hadoop is added.

    Raises:
        FileNotFoundError: The jar is missing: in a source tree, ``make jar`` builds it.
    """
    if not JAR.is_file():
        raise FileNotFoundError(f"No {JAR}: build it with make jar, or install the wheel")
    _append(builder, "spark.jars", str(JAR))
    if connector:
        _append(builder, "spark.jars.packages", f"{_CONNECTOR}:{version('pyspark')}")
    if remote_store is not None:
        builder.config("spark.datasource.ottla-log.remoteStore", remote_store)
        if remote_store.startswith("s3a:"):
            _append(builder, "spark.jars.packages", f"{_HADOOP_AWS}:{_hadoop_version()}")
    return builder


def _hadoop_version() -> str:
    """Return the version of Hadoop in the installed PySpark."""
    names = [Path(file.name).stem for file in files("pyspark") or ()]
    return next(name.removeprefix(_HADOOP_JAR) for name in names if name.startswith(_HADOOP_JAR))


def _append(builder: SparkSession.Builder, key: str, entry: str) -> None:
    """Append an entry to a setting of the builder that is a list with commas, unless the list has it."""
    options: dict[str, Any] = getattr(builder, "_options", {})
    entries = [text for text in str(options.get(key, "")).split(_SEPARATOR) if text]
    builder.config(key, _SEPARATOR.join(dict.fromkeys([*entries, entry])))
