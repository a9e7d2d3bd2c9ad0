"""Reads of a topic by Spark: the data source ``ottla-log`` beside Spark's Kafka connector, on one data directory.

``python -m bench.ottla_log --rounds 5 --gigabytes 5``. A node of Ottla, and a topic of 8 partitions with records of 200
bytes. The connector has the two options that make it fast (docs/how-to/spark.md). Three reads: all records, the records
of a hundredth of the time, and a count. One Spark for all; rounds alternate, and the first three are not counted. CPU
times are those of Spark's JVM and of the broker.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.produce import cpu_s
from compat_tests.support.jars import jars
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch
from spark_it.ottla_log.build_jar import build_jar

TOPIC = "measured"
PARTITIONS = 8
RECORDS_A_BATCH = 500
RECORD_BYTES = 200
EQUAL_BATCHES = 8
FIRST_TIMESTAMP_MS = 1_700_000_000_000
MS_A_ROUND = 1000
WARM_UP_ROUNDS = 3
"""Rounds before the measured ones, in which the JVM compiles the code of both readers."""
FAST_OPTIONS = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": "8388608"}
DRIVER_MEMORY = "6g"
"""Heap of Spark's JVM: the connector keeps the consumers of each read for minutes, with what they have fetched."""
Reader = Callable[[dict[str, str]], DataFrame]


class ReadTimes(NamedTuple):
    """Times in s of a read by Spark, by the clock and of CPU of Spark's JVM and of the broker, and its result."""

    wall_s: float
    spark_cpu_s: float
    broker_cpu_s: float
    result: tuple[int, ...]

    @property
    def total_cpu_s(self) -> float:
        """Return the CPU time of Spark and of the broker together."""
        return self.spark_cpu_s + self.broker_cpu_s


def fill(node: OttlaProcess, gigabytes: float, codec: CompressionType) -> int:
    """Create and fill the topic, and return the number of its records; their timestamps grow with the offsets."""
    client = RawClient(node.port)
    client.call(
        ApiKey.CREATE_TOPICS,
        5,
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic(TOPIC, PARTITIONS, 1)], 60_000),
    )
    payload = [os.urandom(RECORD_BYTES // 4).hex().encode() * 2 for _ in range(RECORDS_A_BATCH)]
    rounds = max(1, int(gigabytes * 1e9 / (RECORDS_A_BATCH * (RECORD_BYTES + 20) * PARTITIONS * EQUAL_BATCHES)))
    for number in range(rounds * PARTITIONS):
        timestamp = FIRST_TIMESTAMP_MS + number // PARTITIONS * MS_A_ROUND
        records = [NewRecord(b"key-%08d" % index, value, timestamp) for index, value in enumerate(payload)]
        raw = build_batch(records, codec=codec)
        for _ in range(EQUAL_BATCHES):
            row = client.produce(TOPIC, number % PARTITIONS, raw)
            assert not row.error_code, row
    client.close()
    return rounds * PARTITIONS * EQUAL_BATCHES * RECORDS_A_BATCH


def checkpointed_records(data_dir: Path) -> int:
    """Return the sum of the high watermarks of the topic in ``replication-offset-checkpoint``; 0 without the file."""
    path = data_dir / "replication-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} "))


def session() -> SparkSession:
    """Start and return a local Spark session with the Kafka connector and the data source ``ottla-log``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, [*jars("spark"), build_jar()])))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def readers(spark: SparkSession, node: OttlaProcess) -> dict[str, Reader]:
    """Return two functions that return a DataFrame of the topic with given options: ``kafka`` and ``ottla-log``."""

    def connector(options: dict[str, str]) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", node.bootstrap).options(**FAST_OPTIONS)
        return reader.option("subscribe", TOPIC).options(**options).load()

    def log_source(options: dict[str, str]) -> DataFrame:
        return spark.read.format("ottla-log").option("subscribe", TOPIC).options(**options).load(str(node.data_dir))

    return {"kafka": connector, "ottla-log": log_source}


def reads(records: int) -> dict[str, Callable[[Reader], tuple[int, ...]]]:
    """Return the measured reads by name: functions that run a query on a reader and return its result.

    ``records``: number of records of the topic.
    """
    span_ms = records // (PARTITIONS * EQUAL_BATCHES * RECORDS_A_BATCH) * MS_A_ROUND
    begin = FIRST_TIMESTAMP_MS + span_ms // 2
    between = {"startingTimestamp": str(begin), "endingTimestamp": str(begin + span_ms // 100)}
    sums = ("count(*)", "sum(length(key))", "sum(length(value))", "sum(offset)", "max(timestamp)")

    def aggregate(frame: DataFrame, *expressions: str) -> tuple[int, ...]:
        (row,) = frame.selectExpr(*(f"cast({text} as string)" for text in expressions)).collect()
        return tuple(row)

    return {
        "full scan": lambda reader: aggregate(reader({}), *sums),
        "1 % time range": lambda reader: aggregate(reader(between), *sums),
        "count(*)": lambda reader: (reader({}).count(),),
    }


def measure(spark: SparkSession, node: OttlaProcess, work: Callable[[], tuple[int, ...]]) -> ReadTimes:
    """Call ``work`` and return its times and its result."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.proc.pid
    since, spark_cpu, broker_cpu = time.monotonic(), cpu_s(jvm), cpu_s(node.pid)
    result = work()
    return ReadTimes(time.monotonic() - since, cpu_s(jvm) - spark_cpu, cpu_s(node.pid) - broker_cpu, result)


def print_medians(name: str, times: dict[str, list[ReadTimes]]) -> None:
    """Print the medians of the read ``name`` for each reader, and their ratios."""
    walls, cpus = {}, {}
    for reader, all_times in times.items():
        walls[reader] = statistics.median(one.wall_s for one in all_times)
        cpus[reader] = statistics.median(one.total_cpu_s for one in all_times)
        print(f"{name}, {reader}: wall {walls[reader]:.2f} s, cpu {cpus[reader]:.2f} s")
    wall, cpu = walls["ottla-log"] / walls["kafka"], cpus["ottla-log"] / cpus["kafka"]
    print(f"{name}, ottla-log / kafka: wall {wall:.2f}, cpu {cpu:.2f}", flush=True)


def main() -> None:
    """Fill a topic, measure each read by both readers in rounds, and print the medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--codec", default="NONE", choices=[codec.name for codec in CompressionType])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where, OttlaProcess(Path(where) / "data", log_retention_ms="-1") as node:
        records = fill(node, options.gigabytes, CompressionType[options.codec])
        wait_until(lambda: checkpointed_records(node.data_dir) == records)
        spark = session()
        print(f"{records} records, {options.codec}", flush=True)
        for name, read in reads(records).items():
            times: dict[str, list[ReadTimes]] = {}
            for number in range(-WARM_UP_ROUNDS, options.rounds):
                for reader, load in readers(spark, node).items():
                    one = measure(spark, node, lambda load=load, read=read: read(load))
                    if number >= 0:
                        times.setdefault(reader, []).append(one)
            assert len({one.result for both in times.values() for one in both}) == 1, times
            print_medians(name, times)
        spark.stop()


if __name__ == "__main__":
    main()
