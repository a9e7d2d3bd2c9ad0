r"""Pipeline "metrics": from measurements of this machine to averages by event-time window, in Parquet and in a topic.

The batch of each trigger is written to both; a batch that is repeated after a failure replaces its files, and its
records in the topic are equal to the former ones::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/metrics.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_UP, Decimal

from pyspark.sql import DataFrame, functions

from spark_it.measurements import Sampler, as_record
from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    chart,
    collect,
    header,
    main,
    sort,
    text_table,
)

MEASUREMENTS, WINDOWS = "measurements", "measurement-windows"
SCHEMA = "host STRING, metric STRING, value DECIMAL(20,3), event_ms LONG"
WINDOW_SCHEMA = "host STRING, metric STRING, unit STRING, start_ms LONG, average STRING, most STRING, samples LONG"
WINDOW_MS, DELAY_MS = 2_000, 1_000
INTERVAL_MS = 100


def make_input(size: int, wait: Wait) -> Iterator[InputRecord]:
    """Yield at least ``size`` measurements from ``/proc``, in samples with event times 100 ms apart.

    ``wait`` is called for 100 ms before each sample.
    """
    sampler = Sampler()
    event_ms, count = int(time.time() * 1000), 0
    while count < size:
        wait(INTERVAL_MS / 1000)
        for measurement in sampler.sample():
            key, value, headers = as_record(measurement, event_ms)
            yield InputRecord(MEASUREMENTS, value, key, event_ms, tuple(headers))
            count += 1
        event_ms += INTERVAL_MS


def run(job: PipelineJob) -> ResultTable:
    """Write average, maximum and count of each metric and closed window to Parquet and to `WINDOWS`; return them.

    Raises:
        AssertionError: files and topic differ.
    """
    measurements = (
        job.read_stream(MEASUREMENTS)
        .select(
            functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("m"),
            header("unit").alias("unit"),
        )
        .select("m.*", "unit", functions.timestamp_millis("m.event_ms").alias("event_time"))
        .withWatermark("event_time", f"{DELAY_MS} milliseconds")
    )
    windows = (
        measurements.groupBy(functions.window("event_time", f"{WINDOW_MS} milliseconds"), "host", "metric", "unit")
        .agg(
            functions.avg("value").cast("string").alias("average"),
            functions.max("value").cast("string").alias("most"),
            functions.count("*").alias("samples"),
        )
        .select(
            "host",
            "metric",
            "unit",
            functions.unix_millis("window.start").alias("start_ms"),
            "average",
            "most",
            "samples",
        )
    )

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        batch.write.mode("overwrite").parquet(job.path(f"windows/batch={number}"))
        values = batch.select(
            functions.concat_ws("/", "host", "metric").alias("key"),
            functions.to_json(functions.struct(*batch.columns)).alias("value"),
        )
        sink = {"kafka.bootstrap.servers": job.bootstrap, "topic": WINDOWS}
        values.write.format("kafka").options(**sink).save()
        batch.unpersist()

    job.start(windows.writeStream.foreachBatch(write), WINDOWS).awaitTermination()
    files = collect(job.spark.read.schema(WINDOW_SCHEMA).parquet(job.path("windows/*")))
    values = job.read(WINDOWS).select(
        functions.from_json(functions.col("value").cast("string"), WINDOW_SCHEMA).alias("w")
    )
    assert files == collect(values.select("w.*").distinct()), "files and topic differ"
    return files


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return host, metric, unit, start in ms, average, maximum and count of each window that is closed.

    The watermark has closed a window if it ends at or before it.
    """
    windows: dict[tuple[str, str, str, int], list[Decimal]] = defaultdict(list)
    latest = 0
    for record in records:
        m = json.loads(record.value or b"", parse_float=Decimal)
        latest = max(latest, m["event_ms"])
        unit = dict(record.headers)["unit"].decode()
        windows[m["host"], m["metric"], unit, m["event_ms"] // WINDOW_MS * WINDOW_MS].append(Decimal(m["value"]))
    out: ResultTable = []
    for key, values in windows.items():
        if key[3] + WINDOW_MS <= latest - DELAY_MS:
            average = (sum(values, Decimal(0)) / len(values)).quantize(Decimal("1e-7"), ROUND_HALF_UP)
            out.append((*key, f"{average:f}", f"{max(values).quantize(Decimal('1e-3')):f}", len(values)))
    return sort(out)


def show(result: ResultTable) -> str:
    """Return a text with a line for each metric and a chart of its windows."""
    by_metric: dict[tuple[str, str], ResultTable] = defaultdict(list)
    for row in result:
        by_metric[row[1], row[2]].append(row)
    lines = []
    for (metric, unit), windows in sorted(by_metric.items()):
        averages = [float(row[4]) for row in windows]
        most = max(float(row[5]) for row in windows)
        average = sum(averages) / len(averages)
        lines.append((metric, unit, f"{average:18,.1f}", f"{most:18,.1f}", chart(averages[-60:])))
    return text_table(("metric", "unit", "average", "most", f"windows of {WINDOW_MS // 1000} s"), lines, 30)


PIPELINE = Pipeline(
    "metrics",
    "Measurements of this machine to averages by window",
    (PipelineTopic(MEASUREMENTS, 2), PipelineTopic(WINDOWS, 1)),
    make_input,
    run,
    expected,
    show,
    test_size=1200,
    demo_size=2000,
)

if __name__ == "__main__":
    main(PIPELINE)
