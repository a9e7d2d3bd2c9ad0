"""Three nodes of Ottla against three of Apache Kafka: a topic with three replicas, written with acks=all.

``python -m bench.cluster``. Each cluster is loaded from its first second on (cold), then for fifteen seconds more, then
in turn with the other one; the median of those rounds counts. The other cluster is idle meanwhile: the cost of three
idle nodes is part of both figures. Latencies are measured at a fixed rate, once the tool itself is warm, memory at the
end. On few cores the tool itself is the limit: the last line has the ratio for brokers without any cost.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.produce import children_cpu_s, cpu_s
from compat_tests.cluster.test_kafka_directory_takeover import to_kafka_nodes
from compat_tests.cluster.test_three_nodes import combined_nodes, start_together
from compat_tests.support.processes import NodeProcess, java_tool

TOPIC = "load"
PARTITIONS = 6
WARM_S = 15.0


class ClusterRound(NamedTuple):
    """Result of one run of Kafka's producer load tool against three nodes.

    Records per second, CPU time of the brokers in s, p99 of the latency in ms, CPU time of the tool and duration in s.
    """

    records_a_second: float
    brokers_cpu_s: float
    p99_ms: float
    tool_cpu_s: float
    took_s: float


class ThreeNodeCluster:
    """Running cluster of three nodes, of Kafka or of Ottla by ``name``."""

    def __init__(self, name: str, nodes: Sequence[NodeProcess]) -> None:
        self.name = name
        self.nodes = nodes
        self.bootstrap = ",".join(node.bootstrap for node in nodes)

    def load(self, records: int, size: int, a_second: int = -1, warmup: int = 0) -> ClusterRound:
        """Produce ``records`` records of ``size`` bytes with acks=all by Kafka's load tool; return the result.

        ``a_second``: limit of records per second; -1: none. ``warmup``: first records, not in rate and latency.
        """
        before, tool, began = self.cpu_s(), children_cpu_s(), time.monotonic()
        text = java_tool(
            "ProducerPerformance",
            *("--bootstrap-server", self.bootstrap, "--topic", TOPIC, "--num-records", str(records)),
            *("--record-size", str(size), "--throughput", str(a_second), "--command-property", "acks=all"),
            *(("--warmup-records", str(warmup)) if warmup else ()),
            timeout_s=300,
        )
        last = text.strip().split("\n")[-1]
        rate = re.search(r"([\d.]+) records/sec", last)
        p99 = re.search(r"(\d+) ms 99th", last)
        assert rate is not None, last
        assert p99 is not None, last
        took_s = time.monotonic() - began
        return ClusterRound(float(rate[1]), self.cpu_s() - before, float(p99[1]), children_cpu_s() - tool, took_s)

    def cpu_s(self) -> float:
        """Return the CPU time in s of the three nodes since their starts."""
        return sum(cpu_s(node.pid) for node in self.nodes)

    def memory_mb(self) -> float:
        """Return the memory of the three nodes in MB, shared pages counted by their share (Pss)."""
        return sum(resident_bytes(node.pid) for node in self.nodes) / 1e6

    def make(self) -> None:
        """Create the topic: three replicas, min.insync.replicas=2."""
        java_tool(
            "TopicCommand",
            *("--bootstrap-server", self.bootstrap, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS)),
            *("--replication-factor", "3", "--config", "min.insync.replicas=2"),
        )


def resident_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, shared pages counted by their share (Pss)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) * 1024


@contextmanager
def stopping_nodes(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    """Stop all nodes at the end of a ``with`` statement."""
    try:
        yield
    finally:
        for node in nodes:
            node.stop()


def print_round(name: str, label: str, one: ClusterRound) -> None:
    """Print a line with the figures of a round of the cluster ``name``."""
    print(
        f"{name:6} {label:9}: {one.records_a_second:9,.0f}/s, brokers' cpu {one.brokers_cpu_s:5.2f} s, "
        f"p99 {one.p99_ms:4.0f} ms, tool {one.tool_cpu_s:5.2f} s",
        flush=True,
    )


def median(rounds: Sequence[ClusterRound], field: str) -> float:
    """Return the median of the field ``field`` over the rounds."""
    return statistics.median(getattr(one, field) for one in rounds)


def main() -> None:
    """Measure both clusters, cold and then in rounds, and print each run, the memory and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second where waits are measured")
    options = parser.parse_args()
    cold: dict[str, ClusterRound] = {}
    warm: dict[str, list[ClusterRound]] = {"kafka": [], "ottla": []}
    steady: dict[str, list[ClusterRound]] = {"kafka": [], "ottla": []}
    with tempfile.TemporaryDirectory() as where, ExitStack() as ends:
        trios = []
        for name in ("kafka", "ottla"):
            (folder := Path(where) / name).mkdir()
            nodes = combined_nodes(folder)
            trio = ThreeNodeCluster(name, to_kafka_nodes(nodes) if name == "kafka" else nodes)
            ends.enter_context(stopping_nodes(trio.nodes))
            start_together(trio.nodes)
            trio.make()
            cold[name] = trio.load(options.records // 2, options.size)
            print_round(name, "cold", cold[name])
            until = time.monotonic() + WARM_S
            while time.monotonic() < until:
                print_round(name, "warms up", trio.load(options.records, options.size))
            trios.append(trio)
        for number in range(options.rounds):
            for trio in trios:
                warm[trio.name].append(trio.load(options.records, options.size))
                print_round(trio.name, f"round {number}", warm[trio.name][-1])
        for _ in range(3):
            for trio in trios:
                steady[trio.name].append(trio.load(12 * options.rate, options.size, options.rate, 2 * options.rate))
                print_round(trio.name, f"{options.rate}/s", steady[trio.name][-1])
        memory = {trio.name: trio.memory_mb() for trio in trios}
    rate = {name: median(rounds, "records_a_second") for name, rounds in warm.items()}
    cpu = {name: median(rounds, "brokers_cpu_s") for name, rounds in warm.items()}
    p99 = {name: median(rounds, "p99_ms") for name, rounds in steady.items()}
    print(f"memory: kafka {memory['kafka']:.0f} MB, ottla {memory['ottla']:.0f} MB")
    print(
        f"ottla / kafka: rate {cold['ottla'].records_a_second / cold['kafka'].records_a_second:.2f} cold, "
        f"{rate['ottla'] / rate['kafka']:.2f} warm; cpu {cpu['ottla'] / cpu['kafka']:.2f}; "
        f"p99 at {options.rate}/s {p99['ottla'] / p99['kafka']:.2f}; memory {memory['ottla'] / memory['kafka']:.3f}"
    )
    tool, took = median(warm["kafka"], "tool_cpu_s"), median(warm["kafka"], "took_s")
    free = (tool + cpu["kafka"]) / tool
    print(f"the tool and Kafka's three used {(tool + cpu['kafka']) / took / (os.cpu_count() or 1):.2f} of the cores")
    print(f"brokers that cost nothing, on cores that are never idle: {free:.2f}")


if __name__ == "__main__":
    main()
