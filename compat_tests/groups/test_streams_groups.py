"""Streams groups with Kafka's classes: their records, and an application that counts words during a kill."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import OttlaProcess, free_port, java_tool
from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules
from ottla.broker.tests.streams_group_fixture import (
    StreamsGroupShard,
    StreamsThreadClient,
    reconcile_threads,
    subtopology,
    topology,
)
from ottla.wire.messages import streams_group_heartbeat

SETTINGS = {
    "group_streams_session_timeout_ms": "6000",
    "group_streams_min_session_timeout_ms": "6000",
    "group_streams_heartbeat_interval_ms": "500",
    "group_streams_min_heartbeat_interval_ms": "500",
    "group_streams_initial_rebalance_delay_ms": "500",
}
LINES = [f"w{number % 7} w{number % 11} w{number % 13}" for number in range(500)]
WITHIN_S = 300


def streams_group() -> StreamsGroupShard:
    """Return all kinds of records with all optional parts."""
    stage = StreamsGroupShard({"t": 4, "log": 4}, num_standby_replicas=1)
    app = topology(subtopology("0", "t", changelogs=("log",), together=(([0], []),)))
    app.subtopologies[0].state_changelog_topics[0].topic_configs.append(
        streams_group_heartbeat.KeyValue("cleanup.policy", "compact")
    )
    more = {
        "user_endpoint": streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("h\u00e9", 65535),
        "rack_id": "r",
        "topology": app,
    }
    more["client_tags"] = [streams_group_heartbeat.KeyValue("zone", "b"), streams_group_heartbeat.KeyValue("a", "")]
    a, b = StreamsThreadClient(stage, "a", **more), StreamsThreadClient(stage, "b", topology=app)
    for thread in (a, b, a):  # a has tasks to revoke
        thread.beat()
    reconcile_threads(a, b)
    stage.beat("a", -1)
    return stage


def test_streams_group_records_are_parsed_and_written_equally_by_kafka() -> None:
    lines = [f"{key.hex()} {'-' if value is None else value.hex()}" for key, value in streams_group().log]
    names = set()
    for line, theirs in zip(lines, run_kafka_rules("GroupRecordRoundTrip.java", lines), strict=True):
        key, value, name = theirs.split(" ")
        assert f"{key} {value}" == line, name
        names.add(name)
    assert names == {
        "StreamsGroupMetadataKey",
        "StreamsGroupMemberMetadataKey",
        "StreamsGroupTargetAssignmentMetadataKey",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupTopologyKey",
    }


class WordCountProcess:
    """Process of the application: two threads, its state in a directory of its own."""

    def __init__(self, bootstrap: str, directory: Path, *more: str) -> None:
        """Start a process; ``more`` is a file of more settings."""
        directory.mkdir()
        self.log = directory / "log"
        program = Path(__file__).parent.parent / "java" / "StreamsWordCount.java"
        command = ["java", "-Xmx256m", "-cp", classpath("streams"), str(program), bootstrap, str(directory / "state")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([*command, str(free_port()), *more], stdout=log, stderr=log)

    def is_running(self) -> bool:
        states = [line for line in self.log.read_text().splitlines() if line.startswith("STATE")]
        return bool(states) and states[-1] == "STATE RUNNING"

    def kill(self) -> None:
        """``kill -9``: its members stay in the group, and a transaction may be open."""
        self._process.kill()
        self._process.wait()


@contextmanager
def words(bootstrap: str, directory: Path, count: int) -> Iterator[list[WordCountProcess]]:
    made = [WordCountProcess(bootstrap, directory / f"words-{number}") for number in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.kill()


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, line in enumerate(LINES):
        producer.produce("lines", line, str(number))
    producer.flush()


def until_counted(bootstrap: str, wanted: dict[str, int]) -> dict[str, int]:
    """Return the counts once they are as wanted, or those at the end of the time limit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["counts"])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + WITHIN_S
    try:
        while counts != wanted and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                counts[message.key().decode()] = int(message.value())
    finally:
        consumer.close()
    return counts


def until_running(process: WordCountProcess) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not process.is_running():
        assert time.monotonic() < deadline, process.log.read_text()[-3000:]
        time.sleep(0.1)


def test_streams_application_after_kill_of_process_counts_each_word_once(data_dir: Path, tmp_path: Path) -> None:
    jars("streams")
    once = Counter(word for line in LINES for word in line.split())
    with OttlaProcess(data_dir, **SETTINGS) as node:
        at = ["--bootstrap-server", node.bootstrap]
        topics = [NewTopic(name, 3, 1) for name in ("lines", "counts")]
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in admin.create_topics(topics).values():
            made.result()
        write(node.bootstrap)
        with words(node.bootstrap, tmp_path, 2) as processes:
            for process in processes:
                until_running(process)
            assert until_counted(node.bootstrap, dict(once)) == once
            output = java_tool("streams.StreamsGroupCommand", *at, "--describe", "--group", "words", "--members")
            assert output.count("StreamThread") == 4
            processes[0].kill()
            write(node.bootstrap)
            assert until_counted(node.bootstrap, {word: 2 * count for word, count in once.items()}) == {
                word: 2 * count for word, count in once.items()
            }, processes[1].log.read_text()[-3000:]
