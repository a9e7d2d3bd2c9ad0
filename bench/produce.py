"""Kafka's producer load tool against Kafka and Ottla in turn: rate, broker CPU, and the ratios.

``make bench``. Rounds alternate, so that both run on the same machine; the first round of each warms it up and does not
count. On few cores the tool itself is the limit: its cost is printed, too, and the last line has the ratio for a broker
without any cost.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class ProduceRound(NamedTuple):
    """Result of one run of Kafka's producer load tool.

    Records per second, CPU time of the broker in s, p99 of the latency in ms, CPU time of the tool in s.
    """

    records_a_second: float
    broker_cpu_s: float
    p99_ms: float
    tool_cpu_s: float


def children_cpu_s() -> float:
    """Return the CPU time in s, user and system, of all ended child processes: the runs of the load tool."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s(pid: int) -> float:
    """Return the CPU time in s, user and system, of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def run_load_tool(node: NodeProcess, records: int, size: int, *more: str) -> ProduceRound:
    """Produce ``records`` records of ``size`` bytes to the topic ``load`` by Kafka's load tool; return the result.

    ``more``: further arguments of the tool.
    """
    before, tool = cpu_s(node.pid), children_cpu_s()
    text = java_tool(
        "ProducerPerformance",
        *("--bootstrap-server", node.bootstrap, "--topic", "load", "--num-records", str(records)),
        *("--record-size", str(size), "--throughput", "-1", *more),
        timeout_s=300,
    )
    last = text.strip().split("\n")[-1]
    rate = re.search(r"([\d.]+) records/sec", last)
    p99 = re.search(r"(\d+) ms 99th", last)
    assert rate is not None, last
    assert p99 is not None, last
    return ProduceRound(float(rate[1]), cpu_s(node.pid) - before, float(p99[1]), children_cpu_s() - tool)


def main() -> None:
    """Run the load tool against both nodes in rounds, and print each round and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    rounds: dict[str, list[ProduceRound]] = {"kafka": [], "ottla": []}
    with tempfile.TemporaryDirectory() as where:
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(Path(where) / "kafka"),
            "ottla": OttlaProcess(Path(where) / "ottla"),
        }
        for number in range(options.rounds):
            for name, node in nodes.items():
                if number == 0:
                    node.start()
                    java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "load")
                one = run_load_tool(node, options.records, options.size)
                rate = f"{one.records_a_second:9,.0f}/s, cpu {one.broker_cpu_s:.2f} s, p99 {one.p99_ms:.0f} ms"
                rate += f", tool {one.tool_cpu_s:.2f} s"
                print(f"{name:6} round {number}: {rate}", flush=True)
                if number:
                    rounds[name].append(one)
        for node in nodes.values():
            node.stop()

    def median(name: str, field: str) -> float:
        return statistics.median(getattr(r, field) for r in rounds[name])

    ratio = median("ottla", "records_a_second") / median("kafka", "records_a_second")
    cpu = median("ottla", "broker_cpu_s") / median("kafka", "broker_cpu_s")
    print(f"ottla / kafka: rate {ratio:.2f}, broker cpu {cpu:.2f}")
    tool = median("kafka", "tool_cpu_s")
    print(f"a broker that cost nothing, on cores that are never idle: {1 + median('kafka', 'broker_cpu_s') / tool:.2f}")


if __name__ == "__main__":
    main()
