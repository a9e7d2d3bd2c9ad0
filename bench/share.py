"""Kafka's share consumer load tool against Kafka and Ottla in turn: rate, broker CPU, and Ottla / Kafka of the medians.

``python -m bench.share [--records 1000000] [--size 100] [--partitions 8] [--consumers 1 8] [--rounds 4]
[--only kafka|ottla]``. Each node is filled once; before each round but the first the group is reset to its start.
Rounds alternate, and the first for each number of consumers does not count. The wait of the first members for their
partitions is part of the tool's measurement, so the records must be many.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.produce import cpu_s
from compat_tests.support.processes import OTTLA, KafkaProcess, NodeProcess, OttlaProcess, java_tool

GROUP, TOPIC = "sharers", "load"
SINGLE_REPLICA_SETTINGS = {f"share_coordinator_state_topic_{name}": "1" for name in ("replication_factor", "min_isr")}


class ShareRound(NamedTuple):
    """Result of one run of Kafka's share consumer load tool: records per second, and CPU time of the broker in s."""

    records_a_second: float
    broker_cpu_s: float


def fill(node: NodeProcess, records: int, size: int, partitions: int) -> None:
    """Create the topic, let the group begin at its earliest offset, and fill the topic by Kafka's load tool."""
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("TopicCommand", *at, "--create", "--topic", TOPIC, "--partitions", str(partitions))
    config = ["--entity-type", "groups", "--entity-name", GROUP, "--add-config", "share.auto.offset.reset=earliest"]
    java_tool("kafka.admin.ConfigCommand", *at, "--alter", *config)
    java_tool(
        "ProducerPerformance",
        *(*at, "--topic", TOPIC, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
        timeout_s=300,
    )


def reset_group(node: NodeProcess) -> None:
    """Reset the offsets of the group to the earliest ones, as soon as it has no members (AssertionError after 60 s)."""
    command = [OTTLA, "group", "reset", GROUP, "--to-earliest", "--execute", "-b", node.bootstrap]
    deadline = time.monotonic() + 60
    while subprocess.run(command, capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, "the group is never empty"
        time.sleep(0.5)


def run_load_tool(node: NodeProcess, records: int, consumers: int) -> ShareRound:
    """Consume ``records`` records with ``consumers`` members by Kafka's load tool; return the result."""
    before = cpu_s(node.pid)
    text = java_tool(
        "ShareConsumerPerformance",
        *("--bootstrap-server", node.bootstrap, "--topic", TOPIC, "--group", GROUP),
        *("--num-records", str(records), "--threads", str(consumers), "--hide-header", "--timeout", "60000"),
        timeout_s=300,
    )
    last = text.strip().splitlines()[-1].split(", ")
    assert "WARNING" not in text, text
    return ShareRound(float(last[4]), cpu_s(node.pid) - before)


def main() -> None:
    """Run the load tool against both nodes in rounds, and print each round and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", choices=["kafka", "ottla"], help="without the other")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(Path(where) / "kafka", None, **SINGLE_REPLICA_SETTINGS),
            "ottla": OttlaProcess(Path(where) / "ottla"),
        }
        nodes = {name: node for name, node in nodes.items() if options.only in (None, name)}
        for node in nodes.values():
            node.start()
            fill(node, options.records, options.size, options.partitions)
        for consumers in options.consumers:
            rounds: dict[str, list[ShareRound]] = {name: [] for name in nodes}
            for number in range(options.rounds):
                for name, node in nodes.items():
                    if number or consumers != options.consumers[0]:
                        reset_group(node)
                    one = run_load_tool(node, options.records, consumers)
                    rate = f"{one.records_a_second:9,.0f}/s, cpu {one.broker_cpu_s:.2f} s"
                    print(f"{name:6} {consumers} consumers, round {number}: {rate}", flush=True)
                    rounds[name] += [one] if number else []
            if len(nodes) > 1:
                print_ratios(consumers, rounds)
        for node in nodes.values():
            node.stop()


def print_ratios(consumers: int, rounds: dict[str, list[ShareRound]]) -> None:
    """Print Ottla / Kafka of the median rate and the median broker CPU of the rounds with ``consumers`` members."""
    parts = []
    for field in ShareRound._fields:
        ours, theirs = (statistics.median(getattr(one, field) for one in rounds[name]) for name in ("ottla", "kafka"))
        parts.append(f"{field} {ours / theirs:.2f}")
    print(f"ottla / kafka, {consumers} consumers: {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
