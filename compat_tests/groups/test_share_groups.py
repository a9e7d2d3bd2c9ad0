"""Share groups with stock consumers: records as work items, each with one member at a time."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from compat_tests.support.processes import OttlaProcess, java_tool
from compat_tests.transactions.test_transactions import confluent
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import prepare_group
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession

WITHIN_S = 180.0


def send(node: OttlaProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(WITHIN_S) == 0


def begin(node: OttlaProcess, topic: str, **settings: str) -> str:
    """Create a topic of three partitions, and a group that reads it from the start."""
    at, group = ["--bootstrap-server", node.bootstrap], f"share-{topic}"
    java_tool("TopicCommand", *at, "--create", "--topic", topic, "--partitions", "3")
    own = {"share.auto.offset.reset": "earliest", **{k.replace("_", "."): v for k, v in settings.items()}}
    java_tool(
        "kafka.admin.ConfigCommand",
        *(*at, "--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", ",".join(f"{key}={value}" for key, value in own.items())),
    )
    return group


def consumer(node: OttlaProcess, group: str, topic: str) -> ShareConsumer:
    config: dict[str, Any] = {"bootstrap.servers": node.bootstrap, "group.id": group}
    made = ShareConsumer(config | {"share.acknowledgement.mode": "explicit"})
    made.subscribe([topic])
    return made


def accept(count: int, *readers: ShareConsumer) -> list[Message]:
    """Accept at least so many records with several consumers: not each is assigned every partition."""
    out: list[Message] = []
    until = time.monotonic() + WITHIN_S
    while len(out) < count and time.monotonic() < until:
        for reader in readers:
            for message in reader.poll(0.5):
                assert message.error() is None, message.error()
                reader.acknowledge(message, AcknowledgeType.ACCEPT)
                out.append(message)
            reader.commit_sync(10.0)
    return out


def group_lag(node: OttlaProcess, group: str) -> dict[str, str]:
    """Return the lag of a group by partition, as Kafka's tool prints it."""
    at = ["--bootstrap-server", node.bootstrap]
    output = java_tool("consumer.group.ShareGroupCommand", *at, "--describe", "--group", group, "--offsets")
    rows = [line.split() for line in output.splitlines()]
    head = next(row for row in rows if row and row[0] == "GROUP")
    return {row[head.index("PARTITION")]: row[head.index("LAG")] for row in rows if row and row[0] == group}


def numbers(messages: list[Message]) -> list[int]:
    return sorted(int(message.value()) for message in messages)


def test_share_group_delivers_each_accepted_record_to_one_member_once(node: OttlaProcess, topic: str) -> None:
    group = begin(node, topic)
    send(node, topic, 60)
    with consumer(node, group, topic) as one, consumer(node, group, topic) as other:
        assert numbers(accept(60, one, other)) == list(range(60))
        send(node, topic, 1)
        assert numbers(accept(1, one, other)) == [0]
    text = java_tool("consumer.group.ShareGroupCommand", "--bootstrap-server", node.bootstrap, "--list", "--state")
    assert [line.split() for line in text.splitlines() if group in line] == [[group, "Empty"]]


def test_share_group_redelivers_released_but_not_rejected_records(node: OttlaProcess, topic: str) -> None:
    group = begin(node, topic)
    send(node, topic, 30)
    deliveries: Counter[int] = Counter()
    accepted: list[int] = []
    with consumer(node, group, topic) as reader:
        until = time.monotonic() + WITHIN_S
        while len(accepted) < 20 and time.monotonic() < until:
            for message in reader.poll(1.0):
                number = int(message.value())
                deliveries[number] += 1
                if number % 3 == 0:
                    reader.acknowledge(message, AcknowledgeType.REJECT)
                elif number % 3 == 1 and deliveries[number] < 3:
                    reader.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    reader.acknowledge(message, AcknowledgeType.ACCEPT)
                    accepted.append(number)
            reader.commit_sync(10.0)
    assert sorted(accepted) == [number for number in range(30) if number % 3]
    assert {number % 3: count for number, count in deliveries.items()} == {0: 1, 1: 3, 2: 1}


def test_share_group_after_node_kill_redelivers_unaccepted_records_only(node: OttlaProcess, topic: str) -> None:
    group = begin(node, topic)
    send(node, topic, 30)
    first = consumer(node, group, topic)
    done = []
    until = time.monotonic() + WITHIN_S
    while not done and time.monotonic() < until:
        for number, message in enumerate(first.poll(1.0)):
            if number % 2:
                first.acknowledge(message, AcknowledgeType.ACCEPT)
                done.append(message)
            else:
                first.acknowledge(message, AcknowledgeType.RELEASE)
        first.commit_sync(10.0)
    first.close()
    node.kill()
    node.start()
    with consumer(node, group, topic) as second:
        rest = accept(30 - len(done), second)
    assert sorted([*numbers(done), *numbers(rest)]) == list(range(30))


def test_share_group_command_describes_and_resets_group_of_console_consumer(node: OttlaProcess, topic: str) -> None:
    group = begin(node, topic)
    send(node, topic, 9)
    at = ["--bootstrap-server", node.bootstrap]
    text = java_tool("consumer.ConsoleShareConsumer", *at, "--topic", topic, "--group", group, "--max-messages", "9")
    assert sorted(text.split()[:9], key=int) == [str(number) for number in range(9)]
    assert group_lag(node, group) == {"0": "0", "1": "0", "2": "0"}
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"]
    java_tool("consumer.group.ShareGroupCommand", *at, *reset)
    assert group_lag(node, group) == {"0": "3", "1": "3", "2": "3"}
    java_tool("consumer.group.ShareGroupCommand", *at, "--delete-offsets", "--group", group, "--topic", topic)
    java_tool("consumer.group.ShareGroupCommand", *at, "--delete", "--group", group)
    assert group not in java_tool("consumer.group.ShareGroupCommand", *at, "--list")


def begin_small(node: OttlaProcess, topic: str, **settings: str) -> str:
    """Create a topic of one partition, and a group that reads it from the start."""
    stage = ScenarioSession(node.port)
    stage.topic(topic, 1)
    group = f"share-{topic}"
    prepare_group(stage, group, "share.assignment.interval.ms")
    own = {"share_auto_offset_reset": "earliest", **settings}
    stage.alter_configs("its own", 32, group, *((key.replace("_", "."), 0, value) for key, value in own.items()))
    stage.wait_until_current()
    return group


def test_share_group_with_read_committed_skips_aborted_records(node: OttlaProcess, topic: str) -> None:
    group = begin_small(node, topic, share_isolation_level="read_committed")
    producer = confluent(node.bootstrap, f"writes-{topic}")
    for first, commits in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(topic, str(number), partition=0)
        (producer.commit_transaction if commits else producer.abort_transaction)(WITHIN_S)
    send_to_one(node, topic, 40)
    with consumer(node, group, topic) as reader:
        assert numbers(accept(21, reader)) == [*range(10), *range(20, 30), 40]
        until = time.monotonic() + WITHIN_S
        while group_lag(node, group) != {"0": "0"}:  # the next fetch skips the aborted records at the end
            assert time.monotonic() < until
            accept(0, reader)


def send_to_one(node: OttlaProcess, topic: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, str(number), partition=0)
    assert producer.flush(WITHIN_S) == 0


def next_of(reader: ShareConsumer, within_s: float) -> list[int]:
    """Return the delivery count of the record that a consumer gets; an empty list if it gets none."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        found = [message.delivery_count() for message in reader.poll(0.2) if message.error() is None]
        if found:
            return found
    return []


def test_share_group_after_lock_timeout_redelivers_up_to_delivery_count_limit(tmp_path: Path, topic: str) -> None:
    with (
        OttlaProcess(tmp_path / "data", group_share_min_record_lock_duration_ms="1000") as node,
        ExitStack() as open_ones,
    ):
        group = begin_small(node, topic, share_record_lock_duration_ms="1500", share_delivery_count_limit="2")
        send_to_one(node, topic, 0)
        one, other, third = (open_ones.enter_context(consumer(node, group, topic)) for _ in range(3))
        assert next_of(one, WITHIN_S) == [1]
        assert next_of(other, WITHIN_S) == [2]
        assert next_of(third, 4.0) == []
        until = time.monotonic() + WITHIN_S
        while group_lag(node, group) != {"0": "0"}:
            assert time.monotonic() < until
