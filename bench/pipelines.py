"""Spark pipelines on Ottla and on Apache Kafka: time of the job and CPU of the broker.

One Spark session runs each pipeline on both brokers in turn, after a run that warms it up. The input is the same, and
each result must equal plain Python.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from bench.produce import cpu_s
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from spark_it.pipelines.pipeline import NAMES, InputRecord, Pipeline, PipelineJob, create_topics, load, skip_wait
from spark_it.pipelines.session import local_session

BATCHES = 3
DRIVER_MEMORY = "6g"
"""Heap of the one Spark session of all runs, which keeps the state of the queries that have ended."""


class PipelineTimes(NamedTuple):
    """Times of a Spark job in s: its duration, and the CPU time of the broker meanwhile."""

    wall_s: float
    broker_cpu_s: float


def run_once(
    pipeline: Pipeline, records: list[InputRecord], spark: SparkSession, node: NodeProcess, folder: Path
) -> PipelineTimes:
    """Create the topics anew, send the input, run the Spark job and check its result; return the job's times only."""
    create_topics(node.bootstrap, pipeline)
    pipeline.send(node.bootstrap, records)
    since, cpu = time.monotonic(), cpu_s(node.pid)
    result = pipeline.run(PipelineJob(spark, node.bootstrap, str(folder), -(-len(records) // BATCHES)))
    measured = PipelineTimes(time.monotonic() - since, cpu_s(node.pid) - cpu)
    assert result == pipeline.expected(records), f"{pipeline.name}: the result differs from plain Python"
    return measured


def measure(
    pipeline: Pipeline, size: int, rounds: int, spark: SparkSession, nodes: dict[str, NodeProcess], folder: Path
) -> tuple[float, float]:
    """Run a pipeline at both nodes in rounds and print the medians; return Ottla / Kafka for time and broker CPU."""
    records = list(pipeline.make_input(size, skip_wait))
    times: dict[str, list[PipelineTimes]] = {name: [] for name in nodes}
    for number in range(-1, rounds):
        for name, node in nodes.items():
            measured = run_once(pipeline, records, spark, node, folder / f"{pipeline.name}-{name}-{number}")
            if number >= 0:
                times[name].append(measured)
    wall = {name: statistics.median(each.wall_s for each in runs) for name, runs in times.items()}
    cpu = {name: statistics.median(each.broker_cpu_s for each in runs) for name, runs in times.items()}
    ratios = wall["ottla"] / wall["kafka"], max(cpu["ottla"], 0.01) / max(cpu["kafka"], 0.01)
    print(
        f"{pipeline.name:13} ottla {wall['ottla']:6.1f} s, cpu {cpu['ottla']:5.2f} s; "
        f"kafka {wall['kafka']:6.1f} s, cpu {cpu['kafka']:5.2f} s; ratios {ratios[0]:.2f}, {ratios[1]:.2f}",
        flush=True,
    )
    return ratios


def main() -> None:
    """Measure the pipelines and print the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipelines", nargs="*", help="names; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, help="approximate number of input records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(folder / "kafka"),
            "ottla": OttlaProcess(folder / "ottla"),
        }
        spark = local_session("bench", folder / "warehouse", driver_memory=DRIVER_MEMORY)
        ratios = []
        with nodes["kafka"], nodes["ottla"]:
            for each in options.pipelines or NAMES:
                pipeline = load(each)
                size = options.size or pipeline.demo_size
                ratios.append(measure(pipeline, size, options.rounds, spark, nodes, folder))
        spark.stop()
    means = [math.prod(pair[i] for pair in ratios) ** (1 / len(ratios)) for i in (0, 1)]
    print(f"geometric means, ottla / kafka: time {means[0]:.2f}, broker cpu {means[1]:.2f}")


if __name__ == "__main__":
    main()
