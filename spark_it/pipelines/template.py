r"""Template of a pipeline: copy this file, rename what it names, and add the name to `NAMES`.

It counts the records of each key::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/template.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pyspark.sql import functions

from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    collect,
    main,
    sort,
    text_table,
)

SOURCE, SINK = "template-source", "template-counts"


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` records with up to ten keys."""
    for number in range(size):
        yield InputRecord(SOURCE, b"value %d" % number, b"key %d" % (number * number % 10))


def run(job: PipelineJob) -> ResultTable:
    """Write the count of each key to a compacted topic whenever it changes; return key and last count."""
    counts = job.read_stream(SOURCE).groupBy("key").agg(functions.count("*").cast("string").alias("value"))
    job.start_to_topic(counts, SINK, "update").awaitTermination()
    last = (
        job.read(SINK)
        .groupBy(functions.col("key").cast("string"))
        .agg(functions.max(functions.col("value").cast("string").cast("long")))
    )
    return collect(last)


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return key and number of records of each key."""
    return sort(Counter((record.key or b"").decode() for record in records).items())


def show(result: ResultTable) -> str:
    """Return keys and counts as a text table."""
    return text_table(("key", "records"), result)


PIPELINE = Pipeline(
    "template",
    "Counts of each key",
    (PipelineTopic(SOURCE), PipelineTopic(SINK, 1, {"cleanup.policy": "compact"})),
    make_input,
    run,
    expected,
    show,
)

if __name__ == "__main__":
    main(PIPELINE)
