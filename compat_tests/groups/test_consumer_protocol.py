"""Stock clients in groups of the new consumer protocol (KIP-848)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.processes import OttlaProcess, java_tool

PATIENCE_S = 300.0


def make(node: OttlaProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(120)


def fill(node: OttlaProcess, topic: str, values: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(120) == 0


class ProtocolConsumer:
    """Consumer that records what it has read and its assignment."""

    def __init__(self, node: OttlaProcess, group: str, topic: str, protocol: str = "consumer", **more: str) -> None:
        settings = {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.read: list[int] = []

    def poll(self) -> None:
        for message in self.consumer.consume(200, 0.05):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.read.append(int(value))
        with suppress(KafkaException):  # no offset to commit, or the partition was revoked just now
            self.consumer.commit(asynchronous=False)

    @property
    def has(self) -> set[tuple[str, int]]:
        return {(part.topic, part.partition) for part in self.consumer.assignment()}


def until(readers: list[ProtocolConsumer], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, [(len(reader.read), reader.has) for reader in readers]
        for reader in readers:
            reader.poll()


def test_console_consumer_after_node_restart_continues_at_committed_offset(tmp_path: Path, topic: str) -> None:
    node = OttlaProcess(tmp_path / "data")
    with node:
        make(node, topic, 3)
        fill(node, topic, range(30), 3)
        first = console(node, topic, 30)
        described = java_tool(
            "consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", node.bootstrap, "--describe", "--group", f"java-{topic}"),
        )
        assert sum(row.split()[3:6] == ["10", "10", "0"] for row in described.splitlines() if topic in row) == 3
        state = java_tool(
            "consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", node.bootstrap, "--list", "--state", "--type", "consumer"),
        )
        assert any(row.split()[0] == f"java-{topic}" and "Empty" in row for row in state.splitlines() if row.strip())
    with node:
        fill(node, topic, range(30, 60), 3)
        assert (first, console(node, topic, 30)) == (list(range(30)), list(range(30, 60)))


def console(node: OttlaProcess, topic: str, count: int) -> list[int]:
    text = java_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", f"java-{topic}"),
        *("--command-property", "group.protocol=consumer", "--command-property", "auto.offset.reset=earliest"),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    )
    return sorted(map(int, text.split()))


def test_consumer_group_with_joining_and_leaving_member_reads_each_record_once(
    node: OttlaProcess, topic: str, group: str
) -> None:
    make(node, topic, 6)
    fill(node, topic, range(600), 6)
    a = ProtocolConsumer(node, group, topic)
    until([a], lambda: len(a.read) == 600)
    b = ProtocolConsumer(node, group, topic)
    until([a, b], lambda: len(a.has) == len(b.has) == 3)
    assert not a.has & b.has
    fill(node, topic, range(600, 900), 6)
    until([a, b], lambda: len(a.read) + len(b.read) == 900)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(120)
    assert (described.type.name, described.state.name, len(described.members)) == ("CONSUMER", "STABLE", 2)
    b.consumer.close()
    until([a], lambda: len(a.has) == 6)
    fill(node, topic, range(900, 1000), 6)
    until([a], lambda: len(a.read) + len(b.read) == 1000)
    assert Counter(a.read + b.read) == Counter(range(1000)), "each record once"
    a.consumer.close()


def test_consumer_group_with_regex_subscription_gets_matching_topics(
    node: OttlaProcess, topic: str, group: str
) -> None:
    for number in (1, 2):
        make(node, f"{topic}-{number}", 1)
    make(node, f"x{topic}-3", 1)
    reader = ProtocolConsumer(node, group, f"^{topic}-[0-9]+$")
    until([reader], lambda: reader.has == {(f"{topic}-1", 0), (f"{topic}-2", 0)})
    reader.consumer.close()


def test_static_member_after_rejoin_gets_its_former_partitions(node: OttlaProcess, topic: str, group: str) -> None:
    make(node, topic, 4)
    a = ProtocolConsumer(node, group, topic, group_instance_id="one")
    b = ProtocolConsumer(node, group, topic)
    until([a, b], lambda: len(a.has) == len(b.has) == 2)
    had = a.has
    a.consumer.close()
    back = ProtocolConsumer(node, group, topic, group_instance_id="one")
    until([back, b], lambda: bool(back.has))
    assert (back.has, len(b.has)) == (had, 2)
    for reader in (back, b):
        reader.consumer.close()


def test_group_migration_between_protocols_under_load_loses_no_record(
    node: OttlaProcess, topic: str, group: str
) -> None:
    make(node, topic, 6)
    sent = 0
    every: list[ProtocolConsumer] = []

    def more() -> None:
        nonlocal sent
        fill(node, topic, range(sent, sent + 300), 6)
        sent += 300

    def enter(protocol: str) -> ProtocolConsumer:
        every.append(ProtocolConsumer(node, group, topic, protocol))
        more()
        return every[-1]

    def shared(*readers: ProtocolConsumer) -> None:
        until(list(readers), lambda: sorted(p for r in readers for _, p in r.has) == list(range(6)))
        until(list(readers), lambda: len({v for r in every for v in r.read}) == sent)

    old = enter("classic")
    shared(old)
    new = enter("consumer")
    shared(old, new)
    old.consumer.close()
    more()
    shared(new)
    again = enter("classic")
    shared(new, again)
    new.consumer.close()
    more()
    shared(again)
    assert {value for reader in every for value in reader.read} == set(range(sent))
    places = [TopicPartition(topic, number) for number in range(6)]
    until([again], lambda: [part.offset for part in again.consumer.committed(places, 20)] == [sent // 6] * 6)
    again.consumer.close()
