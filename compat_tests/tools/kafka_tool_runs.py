"""Runs of ``ottla kafka-*`` and of Kafka's own tools, in one JVM, with the same arguments at the same node."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.support.jars import classpath, jars
from ottla.cli.tests.command_runs import run_command

JAVA_CLASSES = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}
OURS, KAFKAS = "same", "sama"
"""First word of the topics, groups and users of each side, so that each changes its own; of one length."""
SIDES = (OURS, KAFKAS)
_NOISE = re.compile(
    r"\d{4}-\d\d-\d\d |\s+at |Caused by: |\t\.\.\. |\[[-0-9 :,]+\] (WARN|ERROR|INFO)|WARN |SLF4J"
    r"|The consumer rebalance protocol|\s*$"
)
_LIST = re.compile(r"(.* (?:are|options|scenarios|required): )(.+)")
_MEASURED = re.compile(r"(?<=[ (])\d+\.\d+|\d+(?= ms \d)")
"""Numbers in a line of the producer's performance test that differ from run to run."""
_MEMBER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<= )[\w/+-]{22}(?= +/)")


SCRIPTS = sorted(path.stem for path in (Path(__file__).parent / "scripts").iterdir())
"""Names of the scripts: calls in order, each run with ours and with Kafka's.

In a line, ``{0}`` is the first word of names, ``{at}`` the option with the address of the node, ``{ctl}`` that of its
controller, ``{n}`` the number of the side, and ``{folder}`` a folder with files. Text after `` << `` is standard input,
in which ``|`` ends a line. Lines below ``# campaign`` run in a campaign only.
"""


def load_script(name: str) -> list[str]:
    """Return the lines of a script: all if ``OTTLA_KAFKA_TOOLS`` is ``all``, else those above ``# campaign``."""
    text = (Path(__file__).parent / "scripts" / f"{name}.txt").read_text()
    sample, _, others = text.partition("# campaign\n")
    return [*sample.splitlines(), *(others.splitlines() if os.environ.get("OTTLA_KAFKA_TOOLS") == "all" else ())]


class ToolRun(NamedTuple):
    """Result of a tool: exit status, lines of standard output in order, and the first line of standard error."""

    status: int
    out: list[str]
    error: str


def _in_order(value: Any) -> Any:
    """Return a JSON value with the objects of its lists in order."""
    if isinstance(value, dict):
        return {key: _in_order(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    return sorted((_in_order(each) for each in value), key=json.dumps)


def _plain(line: str) -> str:
    """Return a line without random ids and times, with the names of our side, and the words of a list in order."""
    line = _MEMBER.sub("<id>", line.replace(KAFKAS, OURS).replace("127.0.0.8", "127.0.0.7"))
    line = re.sub(r"(?<=[ \t:=])1[7-9]\d{11}(?=\D|$)", "<ms>", line)
    line = re.sub(r"<ms>( *)\t\d+", r"<ms>\1\t<n>", line)
    line = re.sub(r"\d+ ms ago\s*", "<n> ms ago", line).replace(" \t(principal", "\t(principal")
    line = re.sub(r"(?<=operations \[)[^]]+", lambda found: ", ".join(sorted(found[0].split(", "))), line)
    line = re.sub(r"(TopicId: |[dD]irectory ?\.?[iI]d[= ])[\w-]{22}", r"\1<id>", line)
    if " MB/sec), " in line:
        line = _MEASURED.sub("<measured>", line)
    if line.startswith("at 2"):  # total of the consumer's performance test: only size and count do not vary
        cells = line.split(", ")
        line = ", ".join([cells[2], cells[4], *(re.sub(r"\d+", "<n>", cells[i]) for i in (6, 7))])
    head, mark, settings = line.partition("Configs: ")
    line = head + mark + ",".join(sorted(settings.split(",")))
    if line.startswith('{"'):
        line = json.dumps(_in_order(json.loads(line)))
    if found := _LIST.fullmatch(line):
        line = found[1] + ", ".join(sorted(found[2].split(", ")))
    return line


def _without_traces(text: str) -> list[str]:
    """Return the lines of a text without log lines, empty lines and stack traces."""
    lines = text.splitlines()
    traces = {number for number, line in enumerate(lines[1:]) if line.startswith("\tat ")}
    return [line for number, line in enumerate(lines) if number not in traces and not _NOISE.match(line)]


def normalized(status: int, out: str, errors: str) -> ToolRun:
    """Return a result without log lines, stack traces, random parts and the order of Java's hash tables."""
    kept = _without_traces(errors)
    error = "" if not kept or kept[0].startswith(("Exception in thread", "usage: ")) else _plain(kept[0]).rstrip()
    return ToolRun(status, sorted(map(_plain, _without_traces(out))), error)


def is_equal(ours: ToolRun, kafkas: ToolRun) -> bool:
    """Return True for equal results; for an exception that Kafka's tool does not catch, one line is enough."""
    uncaught = kafkas.status == 1 and not kafkas.error
    is_printed = kafkas.status == 0 or any(line.startswith("Error: ") for line in kafkas.out)
    is_trace = is_printed and kafkas.error.startswith(("org.apache.", "java."))
    same_error = is_trace or ours.error == kafkas.error or (uncaught and bool(ours.error))
    return ours[:2] == kafkas[:2] and same_error


class ToolPair:
    """Both implementations of the tools: ours in this process, Kafka's in one JVM.

    Args:
        port: port of the node.
        names: values of the placeholders in lines of a script; ``{0}`` is the side's first word, ``{at}`` its address.
    """

    def __init__(self, port: int, **names: str) -> None:
        jars("kafka")
        address = f"127.0.0.1:{port}"
        self._names = {"at": f"--bootstrap-server {address}", "address": address, **names}
        self._jvm = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath(), str(Path(__file__).parent.parent / "java" / "KafkaTools.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()
        self._jvm.communicate()

    def words(self, line: str, side: str) -> list[str]:
        """Return the words of a script line for a side."""
        return shlex.split(line.format(side, n=SIDES.index(side) + 7, **self._names))

    def run_ours(self, line: str, stdin: str = "") -> ToolRun:
        """Run a line with ``ottla``."""
        done = run_command(*self.words(line, OURS), stdin=stdin.encode())
        return normalized(done.status, done.out.decode(), done.err)

    def run_kafkas(self, line: str, stdin: str = "") -> ToolRun:
        """Run a line with Kafka's tool."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        tool, *words = self.words(line, KAFKAS)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(stdin)
            file.flush()
            self._jvm.stdin.write(f"<\t{file.name}\n" + "\t".join((JAVA_CLASSES[tool], *words)) + "\n")
            self._jvm.stdin.flush()
            lines: list[str] = []
            while not lines or not lines[-1].startswith("= "):
                killer = threading.Timer(60, self._jvm.kill)
                killer.start()
                read = self._jvm.stdout.readline()
                killer.cancel()
                assert read, "the JVM has ended"
                lines.append(read.rstrip("\n"))
        texts = ["\n".join(x[2:] for x in lines if x.startswith(f"{mark} ")) for mark in (1, 2)]
        return normalized(int(lines[-1][2:]), *texts)

    def run(self, line: str) -> tuple[ToolRun, ToolRun]:
        """Run a line with both; text after `` << `` is standard input, in which ``|`` ends a line."""
        command, _, stdin = line.partition(" << ")
        given = stdin.replace("|", "\n").format(OURS, **self._names)
        return self.run_ours(command, given), self.run_kafkas(command, given)


def differences(pair: ToolPair, lines: Iterable[str]) -> Sequence[str]:
    """Run the lines of a script one after the other; return a text for each whose results differ."""
    found = []
    for line in lines:
        ours, kafkas = pair.run(line)
        if not is_equal(ours, kafkas):
            found.append(f"{line}\n  ours:   {ours}\n  kafkas: {kafkas}")
    return found
