"""Pipeline of `make run`: from measurements to event-time windows, in Parquet and in a second topic.

An ordinary spark-submit script. On a Spark cluster only --master and --bootstrap differ::

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 spark_it/pipeline.py \
        --bootstrap HOST:PORT --source measurements --sink windows --parquet DIR --checkpoint DIR
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

VALUE_SCHEMA = "host STRING, metric STRING, value DOUBLE, event_ms LONG"
WINDOW = "2 seconds"
WATERMARK = "1 second"


class ProgressListener(StreamingQueryListener):
    """Listener that prints a line for each batch with rows."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Print that the query runs."""
        print(f"  spark: query {event.id} started", flush=True)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Print the progress."""
        p = event.progress
        if p.numInputRows:
            print(f"  spark: batch {p.batchId}, {p.numInputRows} records, {p.processedRowsPerSecond:.0f}/s", flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Ignore the end of the query."""


def windows(spark: SparkSession, bootstrap: str, source: str, max_per_trigger: int) -> DataFrame:
    """Return average, extremes and count of each metric of each host, by event-time window."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", max_per_trigger)
        .load()
    )
    parsed = records.select(
        f.from_json(f.col("value").cast("string"), VALUE_SCHEMA).alias("m"),
        f.expr("cast(filter(headers, h -> h.key = 'unit')[0].value as string)").alias("unit"),
    ).select("m.*", "unit", f.timestamp_millis("m.event_ms").alias("event_time"))
    return (
        parsed.withWatermark("event_time", WATERMARK)
        .groupBy(f.window("event_time", WINDOW), "host", "metric", "unit")
        .agg(
            f.avg("value").alias("average"),
            f.min("value").alias("least"),
            f.max("value").alias("most"),
            f.count("*").alias("samples"),
        )
        .select(f.col("window.start").alias("begins"), "host", "metric", "unit", "average", "least", "most", "samples")
    )


def main() -> None:
    """Run until all current records of the topic are processed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "source", "sink", "parquet", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max-per-trigger", type=int, default=1000)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("ottla-measurements").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.streams.addListener(ProgressListener())

    def write(rows: DataFrame, batch: int) -> None:
        rows.persist()
        rows.write.mode("append").parquet(options.parquet)
        (
            rows.select(
                f.concat_ws("/", "host", "metric").alias("key"),
                f.to_json(
                    f.struct(*[c for c in rows.columns if c != "begins"], f.unix_millis("begins").alias("begins_ms"))
                ).alias("value"),
            )
            .write.format("kafka")
            .option("kafka.bootstrap.servers", options.bootstrap)
            .option("topic", options.sink)
            .save()
        )
        rows.unpersist()

    query = (
        windows(spark, options.bootstrap, options.source, options.max_per_trigger)
        .writeStream.outputMode("append")
        .foreachBatch(write)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
