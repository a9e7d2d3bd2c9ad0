"""Interface of the Spark pipelines, and functions that they share.

A pipeline is a module with a `Pipeline` in ``PIPELINE``: the topics, the input, the Spark job, the result in plain
Python and its display. The demonstration, the tests, the comparison with Kafka and the Spark cluster execute the same
object.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

NAMES = ("activity", "metrics", "logs", "events", "replay", "joins", "lake", "exactly-once")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
FAST_READ = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": "8388608"}
"""Options with which Spark asks for the offsets of a partition every 50,000 records instead of every 500."""
TIMEOUT_S = 60.0
BARS = " ▁▂▃▄▅▆▇█"

ResultTable = list[tuple[Any, ...]]
"""Sorted tuples of strings, integers and None."""
Wait = Callable[[float], None]


def skip_wait(_seconds: float) -> None:
    """Return at once: the `Wait` of tests, which need no real time."""


class PipelineTopic(NamedTuple):
    """Topic of a pipeline: name, number of partitions and settings with which it is created."""

    name: str
    partitions: int = 3
    settings: Mapping[str, str] = {}


class InputRecord(NamedTuple):
    """Record that a pipeline's input generator yields, to be produced."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    """Timestamp; 0 for the time of sending."""
    headers: tuple[tuple[str, bytes], ...] = ()
    transaction: int = 0
    """Number of the transaction: negative if it is aborted, 0 outside of transactions."""


class PipelineJob(NamedTuple):
    """Execution of a pipeline: a Spark session, bootstrap servers, and a folder for checkpoints and files."""

    spark: SparkSession
    bootstrap: str
    folder: str
    """Path or URI of a file system that the driver and all executors reach."""
    records_per_trigger: int

    def read_stream(self, topic: str, **options: str) -> DataFrame:
        """Return a streaming frame of a topic from its first record, in batches of at most ``records_per_trigger``.

        ``options``: further options of Spark's Kafka source.
        """
        return (
            self.spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "includeHeaders": "true"})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(self.records_per_trigger))
            .options(**FAST_READ)
            .options(**options)
            .load()
        )

    def read(self, topic: str, **options: str) -> DataFrame:
        """Return a batch frame of the records that a topic has now.

        ``options``: further options of Spark's Kafka source.
        """
        return (
            self.spark.read.format("kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "includeHeaders": "true"})
            .options(**FAST_READ)
            .options(**options)
            .load()
        )

    def start(self, writer: DataStreamWriter, name: str) -> StreamingQuery:
        """Start a query that ends after the current records, and return it without waiting.

        ``name``: name of its checkpoint; a query with the same checkpoint continues where the former one ended.
        """
        return writer.option("checkpointLocation", self.path(f"checkpoint/{name}")).trigger(availableNow=True).start()

    def start_to_topic(self, frame: DataFrame, topic: str, mode: str = "append") -> StreamingQuery:
        """Start a query that writes the columns key, value and headers to a topic, at least once; do not wait.

        ``mode``: output mode. The checkpoint has the topic's name.
        """
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "includeHeaders": "true"}
        return self.start(frame.writeStream.format("kafka").outputMode(mode).options(**options), topic)

    def path(self, name: str) -> str:
        """Return the path or URI of a file or folder of this execution; nothing is created."""
        return f"{self.folder}/{name}"


def send(bootstrap: str, records: Iterable[InputRecord]) -> int:
    """Send records with an idempotent producer, wait for their acknowledgements, and return their number.

    Raises:
        AssertionError: a record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    errors: list[str] = []
    count = 0

    def delivered(error: Any, _message: object) -> None:
        if error is not None:
            errors.append(str(error))

    for record in records:
        options = {"timestamp": record.timestamp_ms} if record.timestamp_ms else {}
        headers = list(record.headers) or None
        while True:
            try:
                producer.produce(
                    record.topic, record.value, record.key, headers=headers, on_delivery=delivered, **options
                )
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors, errors[:3]
    return count


@dataclass(frozen=True)
class Pipeline:
    """Definition of a pipeline: topics, input, Spark job, the result in plain Python, and its display."""

    name: str
    summary: str
    topics: tuple[PipelineTopic, ...]
    make_input: Callable[[int, Wait], Iterator[InputRecord]]
    """Generator of about so many records; a pipeline of live data waits between samples."""
    run: Callable[[PipelineJob], ResultTable]
    """Spark job. Continues from its checkpoint, processes the current records, and returns the whole result."""
    expected: Callable[[Iterable[InputRecord]], ResultTable]
    """Result that plain Python computes from the input."""
    show: Callable[[ResultTable], str]
    """Text for people: a table or a chart of the result."""
    send: Callable[[str, Iterable[InputRecord]], int] = send
    test_size: int = 2000
    demo_size: int = 20_000
    packages: tuple[str, ...] = ()
    """Maven coordinates that the job needs besides Spark's Kafka connector."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark that the job needs."""


def load(name: str) -> Pipeline:
    """Import the module of the pipeline with a name in `NAMES`, or ``template``, and return its `Pipeline`."""
    module = importlib.import_module(f"spark_it.pipelines.{name.replace('-', '_')}")
    pipeline: Pipeline = module.PIPELINE
    return pipeline


def create_topics(bootstrap: str, pipeline: Pipeline, replicas: int = 1) -> None:
    """Delete the topics of a pipeline if they exist, create them with ``replicas`` replicas, and wait for both."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    existing = admin.list_topics(timeout=TIMEOUT_S).topics
    old = [topic.name for topic in pipeline.topics if topic.name in existing]
    for done in (admin.delete_topics(old) if old else {}).values():
        done.result(TIMEOUT_S)
    new = [NewTopic(topic.name, topic.partitions, replicas, config=dict(topic.settings)) for topic in pipeline.topics]
    for done in admin.create_topics(new).values():
        done.result(TIMEOUT_S)


class ProgressListener(StreamingQueryListener):
    """Listener of streaming queries that prints a line for each batch with records."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Print nothing at the start of a query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Print number, records and rate of a batch, and how many records were dropped as too late."""
        progress = event.progress
        late = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        if progress.numInputRows:
            note = f", {late} behind the watermark" if late else ""
            rate = f"{progress.processedRowsPerSecond:.0f}/s"
            print(f"  spark: batch {progress.batchId}, {progress.numInputRows} records, {rate}{note}", flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Print nothing at the end of a query."""


def main(pipeline: Pipeline) -> None:
    """Run the job of a pipeline as a script of spark-submit, with the options of the command line.

    The result is written to ``--result`` as JSON, or shown on standard output.
    """
    parser = argparse.ArgumentParser(description=pipeline.summary)
    parser.add_argument("--bootstrap", required=True, help="addresses of brokers, HOST:PORT,...")
    parser.add_argument("--folder", required=True, help="path or URI for checkpoints and files")
    parser.add_argument("--records-per-trigger", type=int, default=100_000, help="largest number of records of a batch")
    parser.add_argument("--result", help="local file for the result, as JSON")
    options = parser.parse_args()
    builder = SparkSession.builder.appName(f"ottla-{pipeline.name}")
    for name, value in pipeline.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.streams.addListener(ProgressListener())
    result = pipeline.run(PipelineJob(spark, options.bootstrap, options.folder, options.records_per_trigger))
    if options.result:
        with open(options.result, "w", encoding="utf-8") as file:
            json.dump(result, file)
    else:
        print(pipeline.show(result), flush=True)
    spark.stop()


def collect(frame: DataFrame) -> ResultTable:
    """Return all rows of a small frame as tuples, sorted by `sort`."""
    return sort(tuple(row) for row in frame.collect())


def dead_letters(frame: DataFrame, reason: Column) -> DataFrame:
    """Return a frame of the records as dead letters: unchanged, with headers for reason and original position.

    ``reason``: column with the text of the reason.
    """
    added = {
        "error.reason": reason,
        "error.topic": functions.col("topic"),
        "error.partition": functions.col("partition").cast("string"),
        "error.offset": functions.col("offset").cast("string"),
    }
    headers = [
        functions.struct(functions.lit(k).alias("key"), v.cast("binary").alias("value")) for k, v in added.items()
    ]
    original = functions.coalesce(
        functions.col("headers"), functions.expr("cast(array() as array<struct<key:string,value:binary>>)")
    )
    return frame.select("key", "value", functions.concat(original, functions.array(*headers)).alias("headers"))


def header(name: str) -> Column:
    """Return a column: the value of the first header ``name`` as a string; null without such a header."""
    return functions.expr(f"cast(try_element_at(filter(headers, h -> h.key = '{name}'), 1).value as string)")


def read_dead_letters(job: PipelineJob, topic: str) -> DataFrame:
    """Return a frame with reason, topic, partition and offset of each dead letter in a topic, without repetitions."""
    columns = [header(f"error.{name}").alias(name) for name in ("reason", "topic", "partition", "offset")]
    return job.read(topic).select(*columns).distinct()


def sort(table: Iterable[tuple[Any, ...]]) -> ResultTable:
    """Return rows sorted by their values from left to right; None comes before other values."""
    return sorted(table, key=lambda row: [(value is not None, value) for value in row])


def chart(values: Iterable[float]) -> str:
    """Return a character for each value, from a space for 0 or less to a full block for the largest."""
    numbers = list(values)
    top = max([*numbers, 1e-9])
    return "".join(BARS[min(max(int(v / top * (len(BARS) - 1)), 0), len(BARS) - 1)] for v in numbers)


def text_table(headings: tuple[str, ...], table: Iterable[tuple[Any, ...]], limit: int = 12) -> str:
    """Return headings and at most `limit` rows as lines of text, numbers to the right; further rows are counted."""
    body = [[f"{v:,}" if isinstance(v, int) else "" if v is None else str(v) for v in row] for row in table]
    numeric = [isinstance(v, int) for row in list(table)[:1] for v in row] or [False] * len(headings)
    shown = body[:limit]
    widths = [max(len(row[i]) for row in [list(headings), *shown]) for i in range(len(headings))]

    def line(cells: Iterable[str]) -> str:
        pairs = zip(cells, widths, numeric, strict=True)
        return "  " + "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in pairs).rstrip()

    more = [f"  ... {len(body) - limit:,} more"] if len(body) > limit else []
    return "\n".join([line(headings), *map(line, shown), *more])
