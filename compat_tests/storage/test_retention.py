"""Retention in a running node: the log start offset advances, clients see it, and a kill restores no record."""

from __future__ import annotations

import contextlib
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import wait_until


def low_and_high(bootstrap: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition("t", 0), 30)
    consumer.close()
    return found


def size_of(data_dir: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
        return sum(p.stat().st_size for p in (data_dir / "t-0").glob("*.log"))
    return -1


def test_retention_bytes_deletes_segments_for_good(data_dir: Path) -> None:
    settings = {"log_retention_check_interval_ms": "200"}
    node = OttlaProcess(data_dir, **settings).start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    config = {"retention.bytes": "3000000", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(120)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(9000):
        producer.produce("t", b"x" * 1000, partition=0)
        producer.poll(0)
    producer.flush(120)
    wait_until(lambda: 3_000_000 <= size_of(data_dir) < 4_200_000)
    low, high = low_and_high(node.bootstrap)
    assert 0 < low < high == 9000
    node.kill()
    node = OttlaProcess(data_dir, node.port, **settings).start()
    assert low_and_high(node.bootstrap)[0] == low
    # unsynced records are visible once they are synced
    wait_until(lambda: low_and_high(node.bootstrap) == (low, high))
    assert node.stop() == 0
