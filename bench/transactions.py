"""Comparison of transactions on Kafka and on Ottla.

``python -m bench.transactions``. Rounds alternate, so that both run on the same machine; the first round of each warms
it up and does not count.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.produce import ProduceRound, run_load_tool
from compat_tests.support.jars import classpath
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool

PROGRAM = Path(__file__).parent.parent / "compat_tests" / "java" / "CommitLatency.java"


class CommitLatencies(NamedTuple):
    """Median and 99th percentile of the latencies of commits, and of whole transactions, in ms."""

    commit_p50_ms: float
    commit_p99_ms: float
    whole_p50_ms: float
    whole_p99_ms: float


def measure_commits(node: NodeProcess, count: int, records: int) -> CommitLatencies:
    """Run ``count`` transactions of ``records`` records each, in sequence, by a Java client; return the latencies."""
    command = ["java", "-cp", classpath(), str(PROGRAM), node.bootstrap, "load", "commits", str(count), str(records)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return CommitLatencies(*(int(word) / 1000 for word in done.stdout.split()))


def main() -> None:
    """Measure the load tool and commits at both nodes in rounds, and print each round and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--commits", type=int, default=2_000)
    parser.add_argument("--each", type=int, default=10, help="records in each of these")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    loads: dict[str, list[ProduceRound]] = {"kafka": [], "ottla": []}
    took: dict[str, list[CommitLatencies]] = {"kafka": [], "ottla": []}
    transactional = ("--transactional-id", "load", "--transaction-duration-ms", "100")
    with tempfile.TemporaryDirectory() as where:
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(Path(where) / "kafka"),
            "ottla": OttlaProcess(Path(where) / "ottla"),
        }
        for number in range(options.rounds):
            for name, node in nodes.items():
                if number == 0:
                    node.start()
                    create = ("--create", "--topic", "load", "--partitions", str(options.partitions))
                    java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, *create)
                one = run_load_tool(node, options.records, options.size, *transactional)
                two = measure_commits(node, options.commits, options.each)
                print(
                    f"{name:6} round {number}: {one.records_a_second:9,.0f}/s, p99 {one.p99_ms:.0f} ms, "
                    f"cpu {one.broker_cpu_s:.2f} s; commit {two.commit_p50_ms:.2f} ms, p99 {two.commit_p99_ms:.2f}; "
                    f"whole {two.whole_p50_ms:.2f} ms, p99 {two.whole_p99_ms:.2f}",
                    flush=True,
                )
                if number:
                    loads[name].append(one)
                    took[name].append(two)
        for node in nodes.values():
            node.stop()

    def ratio(of: dict[str, list[ProduceRound]] | dict[str, list[CommitLatencies]], field: str) -> float:
        ours, theirs = (statistics.median(getattr(x, field) for x in of[name]) for name in ("ottla", "kafka"))
        return float(ours / theirs)

    print(
        f"ottla / kafka: rate {ratio(loads, 'records_a_second'):.2f}, cpu {ratio(loads, 'broker_cpu_s'):.2f}, "
        f"commit {ratio(took, 'commit_p50_ms'):.2f}, p99 {ratio(took, 'commit_p99_ms'):.2f}, "
        f"whole {ratio(took, 'whole_p50_ms'):.2f}, p99 {ratio(took, 'whole_p99_ms'):.2f}"
    )


if __name__ == "__main__":
    main()
