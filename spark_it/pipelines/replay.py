r"""Pipeline "replay": hourly sums from a stream, and those of one day again from a batch that reads a range of times.

Stream and batch share one function; so their rows are equal, and the batch repairs a day at any time. The broker finds
the first record of the range by its index. Records may be out of order, so the batch reads 10 minutes more on both
sides and then filters::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/replay.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, functions

from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    chart,
    collect,
    main,
    sort,
    text_table,
)

READINGS = "readings"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 20_400 * DAY_MS
DAYS = 3
DELAY_MS = 10 * 60_000
BACKFILL_MS = (START_MS + DAY_MS, START_MS + 2 * DAY_MS)
"""Range of times of the batch: the second day."""


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` readings of three days, up to 5 minutes out of order; a record's timestamp is its event time."""
    rng = random.Random(19)
    for number in range(size):
        timestamp_ms = START_MS + number * DAYS * DAY_MS // size + rng.randrange(5 * 60_000)
        sensor = f"sensor-{rng.randrange(8)}".encode()
        yield InputRecord(READINGS, str(rng.randrange(1000)).encode(), sensor, timestamp_ms)


def hourly(readings: DataFrame) -> DataFrame:
    """Return count and sum of the readings of each sensor and hour, from a stream or a batch of Kafka records."""
    return (
        readings.groupBy(functions.window("timestamp", "1 hour"), functions.col("key").cast("string").alias("sensor"))
        .agg(
            functions.count("*").alias("readings"),
            functions.sum(functions.col("value").cast("string").cast("long")).alias("total"),
        )
        .select("sensor", functions.unix_millis("window.start").alias("start_ms"), "readings", "total")
    )


def backfill(job: PipelineJob, start_ms: int, end_ms: int) -> DataFrame:
    """Return the hourly sums of the times from ``start_ms`` to before ``end_ms``, from a batch over these times."""
    readings = job.read(
        READINGS,
        startingTimestamp=str(start_ms - DELAY_MS),
        endingTimestamp=str(end_ms + DELAY_MS),
        startingOffsetsByTimestampStrategy="latest",
    )
    milliseconds = functions.unix_millis("timestamp")
    return hourly(readings.where((milliseconds >= start_ms) & (milliseconds < end_ms)))


def run(job: PipelineJob) -> ResultTable:
    """Write hourly sums from a stream and, for the second day, from a batch to Parquet; return the sums of the stream.

    A row has sensor, start of the hour in ms, count and sum, and 1 if the batch has the same row, else 0.
    """
    stream = hourly(job.read_stream(READINGS).withWatermark("timestamp", f"{DELAY_MS} milliseconds"))
    writer = stream.writeStream.format("parquet").option("path", job.path("hours"))
    job.start(writer, "hours").awaitTermination()
    backfill(job, *BACKFILL_MS).write.mode("overwrite").parquet(job.path("hours-replayed"))
    replayed = set(collect(job.spark.read.parquet(job.path("hours-replayed"))))
    return [(*row, int(row in replayed)) for row in collect(job.spark.read.parquet(job.path("hours")))]


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return sensor, start of the hour in ms, count and sum of each hour that the watermark has closed.

    The last value is 1 for hours of the second day, else 0.
    """
    hours: dict[tuple[str, int], list[int]] = {}
    latest = 0
    for record in records:
        latest = max(latest, record.timestamp_ms)
        key = ((record.key or b"").decode(), record.timestamp_ms // HOUR_MS * HOUR_MS)
        hours.setdefault(key, []).append(int(record.value or b""))
    return sort(
        (*key, len(values), sum(values), int(BACKFILL_MS[0] <= key[1] < BACKFILL_MS[1]))
        for key, values in hours.items()
        if key[1] + HOUR_MS <= latest - DELAY_MS
    )


def show(result: ResultTable) -> str:
    """Return a text with the hours of each sensor, how many of them the batch repeated, and a chart of the sums."""
    lines = []
    for sensor in sorted({row[0] for row in result}):
        hours = [row for row in result if row[0] == sensor]
        lines.append((sensor, len(hours), sum(row[4] for row in hours), chart(row[3] for row in hours)))
    return text_table(("sensor", "hours", "replayed", "sum by hour"), lines)


PIPELINE = Pipeline(
    "replay",
    "A day again from a batch by times; batch and stream give the same rows",
    (PipelineTopic(READINGS, 3, {"retention.ms": "-1"}),),
    make_input,
    run,
    expected,
    show,
)

if __name__ == "__main__":
    main(PIPELINE)
