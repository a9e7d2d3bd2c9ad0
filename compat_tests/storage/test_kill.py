"""kill -9 under load: no acknowledged record is lost or duplicated, and groups continue."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer

from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.processes import OttlaProcess, java_tool

KILLS = 20
BETWEEN_S = 0.4
CLIENT = {
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "message.timeout.ms": 120_000,
}


def read_all(bootstrap: str) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    out: dict[int, list[int]] = {}
    for partition in range(3):
        _, end = consumer.get_watermark_offsets(TopicPartition("t", partition), 120)
        consumer.assign([TopicPartition("t", partition, 0)])
        values = out[partition] = []
        while len(values) < end:
            message = consumer.poll(120)
            assert message is not None, f"only {len(values)} of {end}"
            assert message.error() is None, message.error()
            values.append(int(message.value()))
    consumer.close()
    return out


def kafka_python_count(bootstrap: str, wanted: int) -> int:
    """Return the number of records: the wanted ones, and those that follow within three seconds."""
    consumer = KafkaConsumer(
        "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=3000, group_id=None
    )
    count, deadline = 0, time.monotonic() + 300
    while count < wanted and time.monotonic() < deadline:
        count += sum(1 for _ in consumer)
    consumer.close()
    return count


def test_node_with_20_kills_loses_and_duplicates_no_acknowledged_record(data_dir: Path) -> None:
    node = OttlaProcess(data_dir, num_partitions="3").start()
    writer = NumberWriter(node.bootstrap, "t", partitioned(3), config=CLIENT, burst=20, pause_s=0.005)
    writer.start()
    committed: list[int] = []
    for _ in range(KILLS):
        writer.wait_for_progress()  # the kill comes while the client has requests in flight
        time.sleep(BETWEEN_S)
        committer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
        high = committer.get_watermark_offsets(TopicPartition("t", 0), 120)[1]
        committer.commit(offsets=[TopicPartition("t", 0, high)], asynchronous=False)
        committed.append(high)
        committer.close()
        node.kill()
        node = OttlaProcess(data_dir, node.port, num_partitions="3").start()
        checker = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
        found = checker.committed([TopicPartition("t", 0)], 120)[0].offset
        checker.close()
        assert found == committed[-1]
    writer.stop()
    assert writer.refused == []
    values = read_all(node.bootstrap)
    assert kafka_python_count(node.bootstrap, writer.sent) == writer.sent
    text = java_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", "t", "--from-beginning"),
        *("--max-messages", str(writer.sent), "--timeout-ms", "120000"),
    )
    assert sorted(map(int, text.split())) == list(range(writer.sent))
    assert node.stop() == 0
    all_values = [n for part in values.values() for n in part]
    assert len(writer.acknowledged) == writer.sent > KILLS
    assert sorted(all_values) == list(range(writer.sent)), "lost or doubled"
    for partition, part in values.items():
        assert part == sorted(part), f"partition {partition} is out of order"
    assert committed == sorted(committed)
