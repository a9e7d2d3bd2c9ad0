"""Batch read of many partitions by Spark, from Apache Kafka and Ottla in turn: wall time, CPU time and the ratio.

``python -m bench.spark_read --rounds 3``. Four topics of 500 partitions, with a record in each fifth partition, as in a
Spark job that reads many small topics: Spark has a task and a consumer for each partition with records. A process of
Spark for each read, warmed by the read of a topic of one partition; rounds alternate. ``--requests`` puts a proxy
before each node that counts requests and their latencies by API: compare these, not the times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from bench.produce import cpu_s
from bench.request_counts import CountingProxy
from compat_tests.support.jars import jars
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import create_topics
from ottla.wire.record_batch.records import NewRecord, build_batch

WARM = "warm"
CREATED_WITHIN_S = 300.0
"""Kafka takes a minute and a half to create 2,000 logs on a busy machine."""


class SparkReadTimes(NamedTuple):
    """Duration of a batch read, and the CPU times of the broker and of Spark's JVM, in s."""

    wall_s: float
    broker_cpu_s: float
    spark_cpu_s: float


def write(client: RawClient, topic: str, partition: int) -> None:
    """Produce a record; wait up to `CREATED_WITHIN_S` until the node leads the partition."""
    deadline = time.monotonic() + CREATED_WITHIN_S
    while True:
        raw = build_batch([NewRecord(b"k", b"value", int(time.time() * 1000))])
        row = client.produce(topic, partition, raw)
        if row.error_code == ErrorCode.NONE:
            return
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, row
        assert time.monotonic() < deadline, row
        time.sleep(0.1)


def fill(node: NodeProcess, topics: list[str], partitions: int, every: int) -> int:
    """Create the topics and write a record to each `every`-th partition; return the number of these records.

    The warm-up topic is created, too, with one record that is not counted.
    """
    client, written = RawClient(node.port), 0
    created = [
        create_topics.CreatableTopic(WARM, 1, 1),
        *(create_topics.CreatableTopic(topic, partitions, 1) for topic in topics),
    ]
    answer = client.call(ApiKey.CREATE_TOPICS, 5, create_topics.CreateTopicsRequest(created, 120_000))
    assert not any(row.error_code for row in answer.topics), answer
    for topic in topics:
        for partition in range(0, partitions, every):
            write(client, topic, partition)
            written += 1
    write(client, WARM, 0)
    client.close()
    return written


def spark_read(bootstrap: str, topics: str) -> None:
    """Read the warm-up topic, then ``topics``, by Spark in this process; print the figures of the second read as JSON.

    They are the number of records, and the seconds by the clock and of CPU of Spark's JVM.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars("spark"))))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    gateway: Any = session.sparkContext._gateway
    jvm = gateway.proc.pid

    def read(names: str) -> tuple[int, float, float]:
        since, cpu = time.monotonic(), cpu_s(jvm)
        frame = session.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", names)
        count = frame.load().selectExpr("sum(length(value))", "count(*)").collect()[0][1]
        return count, time.monotonic() - since, cpu_s(jvm) - cpu

    read(WARM)
    count, wall_s, spark_cpu_s = read(topics)
    print(json.dumps({"count": count, "wall_s": wall_s, "cpu_s": spark_cpu_s}), flush=True)
    session.stop()


def read_once(node: NodeProcess, bootstrap: str, topics: list[str], records: int) -> SparkReadTimes:
    """Read all topics by Spark in a new process, check that it finds ``records`` records, and return the times."""
    before = cpu_s(node.pid)
    command = [sys.executable, "-m", "bench.spark_read", "--read", bootstrap, "--topics", ",".join(topics)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    output = json.loads(done.stdout.strip().splitlines()[-1])
    assert output["count"] == records, (output, records)
    return SparkReadTimes(output["wall_s"], cpu_s(node.pid) - before, output["cpu_s"])


def nodes_of(where: Path, ports: dict[str, int] | None) -> dict[str, NodeProcess]:
    """Return the two nodes by name, not started; with `ports` each advertises the port of its proxy."""
    if ports is None:
        return {"kafka": KafkaProcess(where / "kafka"), "ottla": OttlaProcess(where / "ottla")}
    kafka = KafkaProcess(where / "kafka")
    plain = f"advertised.listeners=PLAINTEXT://127.0.0.1:{kafka.port}\n"
    proxied = f"advertised.listeners=PLAINTEXT://127.0.0.1:{ports['kafka']}\n"
    kafka.config.write_text(kafka.config.read_text().replace(plain, proxied))
    advertised = {"advertised_listeners": f"PLAINTEXT://127.0.0.1:{ports['ottla']}"}
    return {"kafka": kafka, "ottla": OttlaProcess(where / "ottla", None, **advertised)}


def measure(options: argparse.Namespace, where: Path) -> dict[str, list[SparkReadTimes]]:
    """Start and fill both nodes, read from them in rounds, print each round, and return the times by node."""
    topics = [f"many-{number}" for number in range(options.number_of_topics)]
    ports = {name: free_port() for name in ("kafka", "ottla")} if options.requests else None
    nodes = nodes_of(where, ports)
    reads: dict[str, list[SparkReadTimes]] = {name: [] for name in nodes}
    with nodes["kafka"], nodes["ottla"]:
        records = {name: fill(node, topics, options.partitions, options.every) for name, node in nodes.items()}
        for number in range(options.rounds):
            for name, node in nodes.items():
                proxy = nullcontext() if ports is None else CountingProxy(ports[name], node.port)
                with proxy as counts:
                    bootstrap = node.bootstrap if ports is None else f"127.0.0.1:{ports[name]}"
                    one = read_once(node, bootstrap, topics, records[name])
                print(
                    f"{name:6} round {number}: {one.wall_s:6.1f} s, broker cpu {one.broker_cpu_s:.2f} s, "
                    f"spark cpu {one.spark_cpu_s:.1f} s",
                    flush=True,
                )
                reads[name].append(one)
                if counts is not None:
                    print(counts.table(), flush=True)
    return reads


def main() -> None:
    """Run the benchmark and print the ratios of the medians; with ``--read`` do only one read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--number-of-topics", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=500, help="of each topic")
    parser.add_argument("--every", type=int, default=5, help="each so-and-so-many-th partition has a record")
    parser.add_argument("--requests", action="store_true", help="count requests, in a proxy")
    parser.add_argument("--read", metavar="BOOTSTRAP", help="the process of one read")
    parser.add_argument("--topics", help="with --read")
    options = parser.parse_args()
    if options.read:
        spark_read(options.read, options.topics)
        return
    with tempfile.TemporaryDirectory() as where:
        reads = measure(options, Path(where))

    def ratio(field: str) -> float:
        ours, theirs = (statistics.median(getattr(one, field) for one in reads[name]) for name in ("ottla", "kafka"))
        return float(ours / theirs)

    print(
        f"ottla / kafka, medians: time {ratio('wall_s'):.2f}, broker cpu {ratio('broker_cpu_s'):.2f}, "
        f"spark cpu {ratio('spark_cpu_s'):.2f}"
    )


if __name__ == "__main__":
    main()
