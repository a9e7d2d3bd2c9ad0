"""Times of commands of ``ottla``, each a process of its own: median and worst of some rounds.

    python -m bench.commands            against a node
    python -m bench.commands --kafka    against Apache Kafka

Each command of ``ottla help`` is measured with ``--help``, and those of `LINES` with work to do. The status is 1 if a
median is above the limit, or a command fails.

Bytecode is cached, as in an installed Ottla, regardless of ``PYTHONDONTWRITEBYTECODE``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from compat_tests.support.processes import OTTLA, KafkaProcess, NodeProcess, OttlaProcess, free_port
from ottla.cli.main import COMMANDS

ROUNDS = 7
LIMIT_S = 0.2
"""Largest median of a command."""
LINES = """
topic list {at}
topic list {at} -o json
topic describe events {at}
topic create made-{n} --partitions 3 {at}
topic partitions made-{n} --partitions 4 {at}
topic config events {at}
topic config events --all {at}
topic config events --set retention.ms=86400000 {at}
topic delete made-{n} {at}
topic export events {folder}/exported {at}
topic import events {folder}/exported {at}
config describe broker 1 {at}
config describe topic events {at}
config set topic events max.message.bytes=100000 {at}
config unset topic events max.message.bytes {at}
config set broker default log.retention.ms=604800000 {at}
config describe group billing {at}
acl add --allow User:a --operation read --topic made-{n} {at}
acl list {at}
acl remove --topic made-{n} {at}
quota set --client c{n} producer_byte_rate=1000000 {at}
quota list {at}
quota remove --client c{n} {at}
user set carol{n} --password-file {folder}/password {at}
user list {at}
user remove carol{n} {at}
group list {at}
group describe billing {at}
group reset billing --topic events --to-earliest {at}
group reset billing --topic events --to-earliest --execute {at}
lag {at}
lag billing --partitions {at}
txn list {at}
txn hanging --topic events {at}
produce events {at}
consume events --exit --max-messages 5 {at}
consume events --tail 5 --exit {at}
consume events --from-time 2020-01-01 --exit --filter value~x --format '%k %v' {at}
cluster status {at}
cluster elect {at}
cluster reassign {at}
cluster rebalance --dry-run {at}
context list
context set staging -b 127.0.0.1:9092
context show staging
completion bash
random-uuid
health -b {address}
doctor {folder}/server.properties
dump {segment}
dump --verify {segment}
decode 0000000a0012000000000001ffff
decode --source METADATA:12
format -t 5L6g3nShT-eMCtK--X86sw --data-dir {folder}/formatted-{n} -c {folder}/server.properties -N
log check {folder}/formatted-{n}
tier list {folder}/store
kafka-topics {tool} --list
kafka-topics {tool} --describe
kafka-topics {tool} --create --topic tool-{n}
kafka-topics {tool} --delete --topic tool-{n}
kafka-consumer-groups {tool} --list
kafka-consumer-groups {tool} --describe --group billing
kafka-configs {tool} --describe --entity-type topics --entity-name events
kafka-console-producer {tool} --topic events
kafka-console-consumer {tool} --topic events --from-beginning --max-messages 5
kafka-get-offsets {tool} --topic events
kafka-delete-records {tool} --offset-json-file {folder}/delete.json
kafka-groups {tool} --list
kafka-broker-api-versions {tool}
kafka-cluster cluster-id {tool}
kafka-log-dirs {tool} --describe
kafka-leader-election {tool} --election-type preferred --topic events --partition 0
kafka-acls {tool} --list
kafka-transactions {tool} list
kafka-metadata-quorum {tool} describe --status
kafka-dump-log --files {segment}
kafka-features {tool} describe
kafka-share-groups {tool} --list
kafka-streams-groups {tool} --list
kafka-reassign-partitions {tool} --list
kafka-storage random-uuid
"""
"""Command lines with work to do; ``{n}`` is the round."""
STDIN = {"produce": "k:v\n" * 5, "kafka-console-producer": "line\n" * 5}
COORDINATOR_WAIT_S = 30
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class CommandTimes(NamedTuple):
    """Times (s) of the rounds of a command line, their exit statuses, and the error output of the first that failed."""

    command: str
    times_s: list[float]
    cpu_s: list[float]
    """CPU time of the processes, which a busy machine changes less."""
    statuses: set[int]
    error: str

    @property
    def median_s(self) -> float:
        """Median of the times, in s."""
        return statistics.median(self.times_s)

    @property
    def has_failed(self) -> bool:
        """True if a round failed. Some of Kafka's tools end with status 1 after their help screen, here as in Kafka."""
        is_help = self.command.startswith("kafka-") and self.command.endswith("--help")
        return self.statuses not in (({0}, {1}) if is_help else ({0},))


def all_commands() -> list[str]:
    """Return all command lines: `LINES`, and each command with ``--help``."""
    return [*LINES.strip().split("\n"), *(f"{name} --help" for name in COMMANDS)]


def prepare(node: NodeProcess, folder: Path) -> None:
    """Create what the commands need: a topic with records, a group with offsets, files."""
    at = ["-b", node.bootstrap]
    subprocess.run([OTTLA, "topic", "create", "events", "--partitions", "3", *at], check=True, capture_output=True)
    text = "".join(f"{number} text\n" for number in range(300))
    subprocess.run([OTTLA, "produce", "events", *at], input=text, text=True, check=True, capture_output=True)
    commit_offsets(node)
    (folder / "password").write_text("secret\n")
    (folder / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
    )
    (folder / "store").mkdir()
    partition = {"topic": "events", "partition": 0, "offset": 0}
    (folder / "delete.json").write_text(json.dumps({"version": 1, "partitions": [partition]}))


def commit_offsets(node: NodeProcess) -> None:
    """Commit offsets of the group ``billing``; the coordinator of a Kafka that has just started needs some seconds.

    Raises:
        KafkaException: after 30 s of refused commits.
    """
    end = time.perf_counter() + COORDINATOR_WAIT_S
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "billing"})
    while True:
        try:
            consumer.commit(offsets=[TopicPartition("events", number, 1) for number in range(3)], asynchronous=False)
            break
        except KafkaException:
            if time.perf_counter() > end:
                raise
            time.sleep(0.5)
    consumer.close()


def measure(line: str, values: dict[str, str], rounds: int) -> CommandTimes:
    """Run a command line ``rounds`` times, with ``values`` for the names in braces, and return the times."""
    times, cpu_times, statuses, error = [], [], set(), ""
    for number in range(rounds):
        words = shlex.split(line.format(n=number, **values))
        before, began = _children_cpu_s(), time.perf_counter()
        done = subprocess.run(
            [OTTLA, *words], input=STDIN.get(words[0], ""), text=True, capture_output=True, check=False
        )
        times.append(time.perf_counter() - began)
        cpu_times.append(_children_cpu_s() - before)
        statuses.add(done.returncode)
        error = error or done.stderr.strip() if done.returncode else error
    return CommandTimes(line, times, cpu_times, statuses, error)


def _children_cpu_s() -> float:
    """Return the CPU time in s of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure all commands against a new node and print their times; return 1 if one fails or takes too long."""
    parser = argparse.ArgumentParser("bench.commands", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["OTTLA_CONTEXTS"] = f"{folder}/contexts.toml"
        settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:ANONYMOUS"}
        kind: type[KafkaProcess | OttlaProcess] = KafkaProcess if options.kafka else OttlaProcess
        if options.kafka:
            settings["early_start_listeners"] = "CONTROLLER"
        with kind(folder / "data", free_port(), **settings) as node:
            prepare(node, folder)
            values = {
                "at": f"-b {node.bootstrap}",
                "address": node.bootstrap,
                "tool": f"--bootstrap-server {node.bootstrap}",
                "folder": str(folder),
                "segment": str(folder / "data" / "events-0" / f"{0:020}.log"),
            }
            found = [measure(line, values, options.rounds) for line in all_commands()]
    slow = [each for each in found if each.median_s > LIMIT_S]
    failed = [each for each in found if each.has_failed]
    for each in sorted(found, key=lambda each: -each.median_s):
        median, worst, cpu = (x * 1000 for x in (each.median_s, max(each.times_s), statistics.median(each.cpu_s)))
        print(f"{median:6.0f} ms, worst {worst:6.0f} ms, CPU {cpu:4.0f} ms  {each.command}")
    for each in failed:
        print(f"status {sorted(each.statuses)}: {each.command}: {each.error}")
    print(f"{len(found)} commands, {len(slow)} above {LIMIT_S} s, {len(failed)} failed")
    return int(bool(slow or failed))


if __name__ == "__main__":
    sys.exit(main())
