"""``ottla kafka-topics`` beside kafka-topics.sh on one node: the same output, exit status and error text."""

from __future__ import annotations

import re
import shlex

import pytest

from compat_tests.support.processes import OttlaProcess, run_java_tool
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)
SCRIPT = """
--create --topic {0}.a --partitions 2 --replication-factor 1 --config retention.ms=5000 --config segment.bytes=2000000
--create --topic {0}.a
--create --topic {0}.a --if-not-exists
--create --topic {0}-b --replica-assignment 1,1
--create --topic {0}-c --partitions 0
--describe --topic {0}.*
--describe --topic {0}.* --topics-with-overrides
--alter --topic {0}-b --partitions 1
--alter --topic {0}-b --partitions 3
--list --topic {0}.*
--describe --topic {0}-missing
--list --topic {0}-b --config a=b
--delete --topic {0}.*
--list --topic {0}.*
""".strip().splitlines()


ToolRun = tuple[int, str, str]
"""Exit status, standard output and standard error."""
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d |\s+at |Caused by: ")


def _normalized(text: str) -> str:
    """Leave log lines out, replace topic ids, and sort topics and settings: Kafka prints them in order of hashes."""
    lines = [line for line in text.splitlines() if not LOG_LINE.match(line)]
    for number, line in enumerate(lines):
        head, mark, settings = re.sub(r"TopicId: \S+", "TopicId: ID", line).partition("Configs: ")
        lines[number] = head + mark + ",".join(sorted(settings.split(",")))
    topics = re.split(r"\n(?=Topic: )", "\n".join(lines))
    return "\n".join(sorted(topics))


@pytest.mark.parametrize("line", range(len(SCRIPT)))
def test_kafka_topics_script_prints_the_output_of_kafkas_tool(line: int, kafka_runs: list[ToolRun]) -> None:
    ours, kafkas = kafka_runs[2 * line], kafka_runs[2 * line + 1]
    assert ours[:2] == kafkas[:2]
    assert ours[2].splitlines()[:1] == kafkas[2].splitlines()[:1]


@pytest.fixture(scope="module")
def kafka_runs(node: OttlaProcess) -> list[ToolRun]:
    """Results of each line of the script: ours, then that of Kafka's tool, each on topics of its own."""
    out = []
    at = ["--bootstrap-server", f"127.0.0.1:{node.port}"]
    for line in SCRIPT:
        ours = run_command("kafka-topics", *at, *shlex.split(line.format("same")))
        out.append((ours.status, _normalized(ours.out.decode()), ours.err))
        theirs = run_java_tool("TopicCommand", *at, *shlex.split(line.format("sama")))
        shown, errors = (_normalized(text.replace("sama", "same")) for text in (theirs.stdout, theirs.stderr))
        out.append((theirs.returncode, shown, errors))
    return out
