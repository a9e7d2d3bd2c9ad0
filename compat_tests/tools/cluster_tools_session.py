"""Three nodes of Ottla or of Kafka for Kafka's tools, and the output of the tools without its random parts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compat_tests.cluster.test_kafka_directory_takeover import KafkaFromFile
from compat_tests.cluster.test_mixed_cluster import CLUSTER_ID
from compat_tests.cluster.test_three_nodes import SAMPLE, OttlaFromFile, formatted, wait_for
from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import free_ports
from compat_tests.support.raw_client import RawClient, wait_until_brokers_current

SLOW_TIMEOUTS = "controller.quorum.fetch.timeout.ms=20000\nbroker.session.timeout.ms=60000\n"
"""Timeouts that prevent elections and fencing when three nodes are slow on one machine."""
DIRECTORIES = ["JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA"]


class ToolsCluster:
    """Three nodes of both roles, with dynamic voters, so that they can be added and removed."""

    def __init__(self, folder: Path, *, kafka: bool) -> None:
        ports = free_ports(6)
        self.brokers, self.controllers = ports[:3], ports[3:]
        each = list(zip((1, 2, 3), self.brokers, self.controllers, strict=True))
        voters = [f"{i}@127.0.0.1:{at}:{name}" for (i, _, at), name in zip(each, DIRECTORIES, strict=True)]
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.controllers)
        make = _kafkas if kafka else formatted
        self.nodes = [
            make(
                folder,
                i,
                broker,
                f"process.roles=broker,controller\ncontroller.quorum.bootstrap.servers={bootstrap}\n"
                f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n{SLOW_TIMEOUTS}",
                "--initial-controllers",
                ",".join(voters),
            )
            for i, broker, controller in each
        ]

    def names(self) -> dict[str, str]:
        """Return the placeholders of ports and paths; that of a port is as long as a port."""
        out = {str(node.data_dir): f"<data of {i}>" for i, node in enumerate(self.nodes, 1)}
        for kind, ports in (("brk", self.brokers), ("ctl", self.controllers)):
            out |= {str(port): f"{kind}-{i}" for i, port in enumerate(ports, 1)}
        return out


def _kafkas(folder: Path, node_id: int, port: int, text: str, *options: str) -> OttlaFromFile:
    """Return a Kafka node, formatted by Kafka's tool."""
    jars("kafka")
    file, data = folder / f"{node_id}.properties", folder / f"data-{node_id}"
    file.write_text(f"{text}node.id={node_id}\nlog.dirs={data}\n{SAMPLE}")
    tool = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run([*tool, *options], check=True, capture_output=True)
    return KafkaFromFile(file, data, port)


class KafkaTools:
    """Kafka's tools in one JVM, for three nodes; records the output of each call."""

    def __init__(self, three: ToolsCluster, folder: Path) -> None:
        jars("kafka")
        self.cluster, self.transcript = three, list[str]()
        self._folder, self._names = folder, three.names()
        self._peers = [RawClient(port) for port in three.brokers]
        self._process = subprocess.Popen(
            ["java", "-cp", classpath(), str(Path(__file__).parent.parent / "java" / "KafkaTools.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End the JVM."""
        for peer in self._peers:
            peer.close()
        self._process.kill()
        self._process.communicate()

    @property
    def brokers(self) -> tuple[str, str]:
        """Return the addresses of the running brokers."""
        living = self.cluster.brokers[: len(self._peers)]
        return "--bootstrap-server", ",".join(f"127.0.0.1:{port}" for port in living)

    @property
    def controllers(self) -> tuple[str, str]:
        """Return the addresses of the running controllers."""
        living = self.cluster.controllers[: len(self._peers)]
        return "--bootstrap-controller", ",".join(f"127.0.0.1:{port}" for port in living)

    def write_json(self, name: str, content: Any) -> str:
        """Write a file of JSON and return its path."""
        where = self._folder / name
        where.write_text(json.dumps(content))
        return str(where)

    def run(self, tool: str, *words: str) -> list[str]:
        """Return the lines and the exit status of a call, unchanged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *words)) + "\n")
        self._process.stdin.flush()
        lines = []
        while not lines or not lines[-1].startswith("= "):
            line = self._process.stdout.readline()
            assert line, "the tools have ended"
            lines.append(line.rstrip("\n"))
        return lines

    def record(self, tool: str, *words: str, until_it: Callable[[str], Any] | None = None) -> None:
        """Record the output of a call; ``until`` repeats the call until its output meets a condition."""
        lines = self.run(tool, *words)
        if until_it is not None and not until_it("\n".join(lines)):
            lines = wait_for(lambda: self._once(until_it, tool, *words))
        self.transcript += [
            f"$ {self._replace_names(' '.join((tool, *words)))}",
            *map(self._replace_names, _without_chance(lines)),
            "",
        ]

    def _once(self, it: Callable[[str], Any], tool: str, *words: str) -> list[str] | None:
        lines = self.run(tool, *words)
        return lines if it("\n".join(lines)) else None

    def wait_until_current(self) -> None:
        """Wait until every broker has applied every change."""
        wait_until_brokers_current(*self._peers)

    def stop_third_node(self) -> None:
        """Stop the third node cleanly, and wait until its broker is fenced."""
        self._peers.pop().close()
        self.cluster.nodes[2].stop()
        wait_for(lambda: any(" fenced " in x for x in self.run("ClusterTool", "list-endpoints", *self.fenced)))

    @property
    def fenced(self) -> tuple[str, ...]:
        """Return the option that lists fenced brokers, and its address."""
        return (*self.brokers, "--include-fenced-brokers")

    def _replace_names(self, line: str) -> str:
        for found, name in self._names.items():
            line = line.replace(found, name)
        return line.replace(str(self._folder), "<folder>")


_NUMBERED = r"^(1 (?:LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs): +)-?\d+$"
_AGO = r"(-1|\d+(?: ms ago)?)\s+"
_REPLICA = rf"^1 (\d+)\s+(\S+)\s+\d+\s+\d+\s+{_AGO}{_AGO}(Leader|Follower|Observer)\s*$"
_STACK = re.compile(r"^[12] (\tat |\t\.\.\. |$)")


def _without_chance(lines: Sequence[str]) -> list[str]:
    """Return lines without ids, times, offsets and Java stack traces.

    The nodes of the quorum are separated from their roles.
    """
    out, nodes = [], []
    for line in lines:
        if _STACK.match(line):
            continue
        line = re.sub(r"TopicId: \S{22}", "TopicId: <id>", line)
        line = re.sub(r"Epoch: \d+$", "Epoch: <n>", line)
        line = re.sub(r"(active controller appears to be node|Local controller) \d", r"\1 <node>", line)
        line = re.sub(_NUMBERED, r"\1<n>", line)
        line = re.sub(r"Isr: ([\d,]+)", lambda m: f"Isr: {','.join(sorted(m[1].split(',')))}", line)
        line = re.sub(r"set of voters \[([^]]+)\]", _in_order, line)
        if row := re.match(_REPLICA, line):
            nodes.append(f"{row[1]} {row[2]}")
            times = [re.sub(r"^\d+", "<n>", x) for x in (row[3], row[4])]
            line = f"1 <node> {' '.join(times)} {row[5]}"
        elif line.startswith("1 NodeId"):
            line = " ".join(line.split())
        elif line.startswith('1 {"'):
            line = f"1 {json.dumps(_sorted(json.loads(line[2:])), sort_keys=True)}"
        out.append(line)
    return out + [f"nodes: {', '.join(sorted(nodes))}"] * bool(nodes)


def _in_order(voters: re.Match[str]) -> str:
    """Return a set of voters in order; Java prints it in the order of hashes."""
    return f"set of voters {sorted(re.findall(r'ReplicaKey[^)]+.', voters[1]))}"


def _sorted(value: Any) -> Any:
    """Return the output with the entries of Java maps sorted."""
    if isinstance(value, dict):
        return {k: _sorted(v) for k, v in value.items()}
    if isinstance(value, list):
        rows = [_sorted(v) for v in value]
        return sorted(rows, key=json.dumps) if rows and isinstance(rows[0], dict) else rows
    return value
