"""Partitions that move between log directories: by Kafka's tools under load, and across a change of the broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient, wait_until_brokers_current
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import alter_replica_log_dirs, create_topics, describe_log_dirs, incremental_alter_configs
from ottla.wire.record_batch import records

PARTITIONS = 2
WAIT_S = 180.0
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
Rows = dict[tuple[str, int], list[bool]]


def kind(node_class: type[NodeProcess], tmp_path: Path) -> NodeProcess:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    return node_class(tmp_path / "a", None, log_dirs=dirs)  # type: ignore[call-arg]


def until(ask: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT_S
    while not (found := ask()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
    return found


def make(node: NodeProcess, topic: str = "t") -> None:
    body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(topic, PARTITIONS, 1)], 30_000)
    assert RawClient(node.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0


def lying(node: NodeProcess) -> Rows:
    """Return, by directory and partition, the future flag of each replica there."""
    out: Rows = {}
    body = describe_log_dirs.DescribeLogDirsRequest(
        [describe_log_dirs.DescribableLogDirTopic("t", list(range(PARTITIONS)))]
    )
    for row in RawClient(node.port).call(ApiKey.DESCRIBE_LOG_DIRS, 4, body).results:
        for topic in row.topics:
            for part in topic.partitions:
                out.setdefault((Path(row.log_dir).name, part.partition_index), []).append(part.is_future_key)
    return out


def ask_for(node: NodeProcess, path: Path | str, *numbers: int, topic: str = "t") -> list[int]:
    body = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        [
            alter_replica_log_dirs.AlterReplicaLogDir(
                str(path), [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, list(numbers))]
            )
        ]
    )
    answer = RawClient(node.port).call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, body)
    rows = {p.partition_index: p.error_code for t in answer.results for p in t.partitions}
    return [rows[n] for n in numbers]


def change(node: NodeProcess, key: str, value: str) -> None:
    config = incremental_alter_configs.AlterableConfig(key, 0, value)
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(4, "1", [config])]
    )
    client = RawClient(node.port)
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
    wait_until_brokers_current(client)


def read_all(node: NodeProcess, count: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "all", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", n, 0) for n in range(PARTITIONS)])
    out: dict[tuple[int, int], bytes] = {}
    end = time.monotonic() + WAIT_S
    while len(out) < count and time.monotonic() < end:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            out[message.partition() or 0, message.offset() or 0] = message.value() or b""
    consumer.close()
    return out


def test_log_dir_move_by_kafka_tools_under_load_keeps_all_records(tmp_path: Path) -> None:
    with kind(OttlaProcess, tmp_path) as node:
        make(node)
        load = NumberWriter(node.bootstrap, "t", partitioned(PARTITIONS, 50), pause_s=0.001)
        load.start()
        load.wait_for_progress(1000)
        there = {number: next(name for name, n in lying(node) if n == number) for number in range(PARTITIONS)}
        plan = tmp_path / "plan.json"
        rows = [
            {"topic": "t", "partition": n, "replicas": [1], "log_dirs": [str(tmp_path / ("b" if x == "a" else "a"))]}
            for n, x in there.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        at = ["--bootstrap-server", node.bootstrap, "--reassignment-json-file", str(plan)]
        name = "reassign.ReassignPartitionsCommand"
        output = java_tool(name, *at, "--execute", "--replica-alter-log-dirs-throttle", "50000000")
        assert output.count("Successfully started moving log directory to") == PARTITIONS, output
        wanted = {("b" if x == "a" else "a", n): [False] for n, x in there.items()}
        until(lambda: lying(node) == wanted)
        output = java_tool(name, *at, "--verify")
        assert output.count("completed successfully") == PARTITIONS, output
        load.wait_for_progress(1000)
        load.stop()
        assert load.refused == []
        assert sorted(load.acknowledged) == list(range(load.sent))
        written = {(n % PARTITIONS, n // PARTITIONS): b"%d" % n * 50 for n in range(load.sent)}
        assert read_all(node, load.sent) == written
        output = java_tool("LogDirsCommand", "--bootstrap-server", node.bootstrap, "--describe", "--topic-list", "t")
        result = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        found = {
            (Path(d["logDir"]).name, p["partition"]): p["isFuture"]
            for d in result["brokers"][0]["logDirs"]
            for p in d["partitions"]
        }
        assert found == {(x, f"t-{n}"): False for x, n in wanted}


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("node_class", [OttlaProcess, KafkaProcess])
def test_alter_replica_log_dirs_with_valid_and_invalid_targets_returns_kafka_errors(
    tmp_path: Path, node_class: type[NodeProcess]
) -> None:
    with kind(node_class, tmp_path) as node:
        make(node)
        here = until(lambda: next((name for name, n in lying(node) if n == 0), None))
        there = "b" if here == "a" else "a"
        assert ask_for(node, tmp_path / here, 0) == [0]
        assert ask_for(node, tmp_path / "c", 0) == [57]
        assert ask_for(node, tmp_path / there, 77) == [3]
        assert ask_for(node, tmp_path / there, 0, topic="x" * 230) == [17]
        change(node, "cordoned.log.dirs", str(tmp_path / there))
        until(lambda: ask_for(node, tmp_path / there, 0) == [39])
        change(node, "cordoned.log.dirs", "")
        until(lambda: ask_for(node, tmp_path / there, 0) == [0])
        until(lambda: lying(node).get((there, 0)) == [False] and (here, 0) not in lying(node))


def size_bytes(directory: Path) -> int:
    return sum(x.stat().st_size for x in directory.glob("*.log"))


def filled(node: NodeProcess, count: int) -> None:
    raw = records.build_batch([records.NewRecord(None, bytes(100_000), time.time_ns() // 10**6)])
    for _ in range(count):
        until(lambda: RawClient(node.port).produce("t", 0, raw).error_code == 0)


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("first", [OttlaProcess, KafkaProcess])
def test_log_dir_move_interrupted_by_kill_is_completed_by_other_broker(
    tmp_path: Path, first: type[NodeProcess]
) -> None:
    """Kill during a move; the other kind of node finds the future replica and completes the move."""
    second = KafkaProcess if first is OttlaProcess else OttlaProcess
    node = kind(first, tmp_path)
    node.start()
    make(node)
    here = until(lambda: next((name for name, n in lying(node) if n == 0), None))
    there = "b" if here == "a" else "a"
    filled(node, 60)
    change(node, RATE, "500000")
    assert ask_for(node, tmp_path / there, 0) == [0]
    until(lambda: lying(node).get((there, 0)) == [True])
    (copy,) = (tmp_path / there).glob("t-0.*-future")
    until(lambda: size_bytes(copy) > 500_000)
    assert lying(node)[here, 0] == [False]
    assert node.stop() == 0 or first is KafkaProcess
    assert 500_000 < size_bytes(copy) < 6_000_000
    with kind(second, tmp_path) as node:
        until(lambda: lying(node).get((here, 0)) == [False])
        change(node, RATE, "100000000")
        until(lambda: lying(node).get((there, 0)) == [False] and (here, 0) not in lying(node))
        assert len(read_all(node, 60)) == 60
        assert not list((tmp_path / there).glob("*-future"))
