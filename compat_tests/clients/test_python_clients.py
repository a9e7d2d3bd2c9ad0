"""kafka-python and confluent-kafka, unmodified: codecs, keys, nulls, headers, groups, admin."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from compat_tests.support.processes import OttlaProcess

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 180.0

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def rows(count: int) -> list[Row]:
    """Return keys, values and headers, some of them null, some of them large."""
    out: list[Row] = []
    for i in range(count):
        key = None if i % 7 == 0 else b"key-%d" % i
        value = None if i % 11 == 5 else b"value-%d" % i * (1 + i % 50)
        headers: tuple[tuple[str, bytes | None], ...] = () if i % 3 else (("one", b"1"), ("none", None), ("one", b"2"))
        out.append((key, value, headers))
    return out


def produce_confluent(bootstrap: str, topic: str, items: list[Row], codec: str, **more: Any) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **more})
    for key, value, headers in items:
        producer.produce(
            topic, value, key, 0, on_delivery=lambda e, _: errors.append(e) if e else None, headers=list(headers)
        )
    assert producer.flush(WAIT_S) == 0
    assert not errors


def consume_confluent(bootstrap: str, topic: str, group: str, count: int) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "check.crcs": True}
    )
    consumer.subscribe([topic])
    out: list[Row] = []
    deadline = time.monotonic() + WAIT_S
    while len(out) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            headers = tuple(message.headers() or ())
            out.append((message.key(), message.value(), headers))
    consumer.commit(asynchronous=False)
    consumer.close()
    return out


def produce_kafka_python(bootstrap: str, topic: str, items: list[Row], codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20, acks="all"
    )
    futures = [
        producer.send(topic, value=value, key=key, partition=0, headers=list(headers)) for key, value, headers in items
    ]
    producer.flush(WAIT_S)
    for future in futures:
        future.get(WAIT_S)
    producer.close()


def consume_kafka_python(bootstrap: str, topic: str, group: str, count: int) -> list[Row]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    out: list[Row] = []
    for message in consumer:
        out.append((message.key, message.value, tuple(message.headers)))
        if len(out) == count:
            break
    consumer.commit()
    consumer.close()
    return out


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_consumer_reads_records_of_confluent_kafka(
    node: OttlaProcess, topic: str, group: str, codec: str
) -> None:
    items = rows(200)
    produce_confluent(node.bootstrap, topic, items, codec)
    assert consume_kafka_python(node.bootstrap, topic, group, len(items)) == items


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_consumer_reads_records_of_kafka_python(
    node: OttlaProcess, topic: str, group: str, codec: str
) -> None:
    # kafka-python sends no header without a value, and no record without key and value.
    items = [(k, v, tuple((name, text or b"") for name, text in headers)) for k, v, headers in rows(200) if k or v]
    produce_kafka_python(node.bootstrap, topic, items, codec)
    assert consume_confluent(node.bootstrap, topic, group, len(items)) == items


def test_idempotent_producer_of_confluent_kafka_writes_all_records(node: OttlaProcess, topic: str, group: str) -> None:
    items = rows(500)
    produce_confluent(node.bootstrap, topic, items, "lz4", **{"enable.idempotence": True})
    assert consume_confluent(node.bootstrap, topic, group, len(items)) == items


def test_produce_above_max_message_bytes_returns_msg_size_too_large(node: OttlaProcess, topic: str, group: str) -> None:
    big: list[Row] = [(None, b"x" * 999_000, ())]
    produce_confluent(node.bootstrap, topic, big, "none")
    assert consume_confluent(node.bootstrap, topic, group, 1) == big
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.max.bytes": 3_000_000})
    producer.produce(topic, b"x" * 2_000_000, on_delivery=lambda e, _: errors.append(e))
    producer.flush(WAIT_S)
    assert [e.name() for e in errors] == ["MSG_SIZE_TOO_LARGE"]


def test_consumer_group_after_leave_of_a_member_reassigns_its_partitions(
    node: OttlaProcess, topic: str, group: str
) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(WAIT_S)
    settings = {"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    settings |= {"heartbeat.interval.ms": "200", "session.timeout.ms": "6000"}
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe([topic])
    second.subscribe([topic])

    def wait_for(share: tuple[int, ...], *consumers: Consumer) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for consumer in consumers:
                consumer.poll(0.1)
            if tuple(len(c.assignment()) for c in consumers) == share:
                return
        raise AssertionError([c.assignment() for c in consumers])

    wait_for((2, 2), first, second)
    second.close()
    wait_for((4,), first)
    first.close()


def test_committed_offset_is_start_of_the_next_consumer(node: OttlaProcess, topic: str, group: str) -> None:
    items = rows(50)
    produce_confluent(node.bootstrap, topic, items, "none")
    assert len(consume_confluent(node.bootstrap, topic, group, 50)) == 50
    checker = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    assert checker.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset == 50
    checker.close()
    produce_confluent(node.bootstrap, topic, items[:5], "none")
    assert consume_kafka_python(node.bootstrap, topic, group, 5) == items[:5]


def test_confluent_admin_client_creates_alters_and_deletes_topic(node: OttlaProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "1234"})])[topic].result(WAIT_S)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert found["retention.ms"].value == "1234"
    assert found["segment.bytes"].value == "1073741824"
    admin.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_kafka_python_admin_client_describes_cluster(node: OttlaProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    cluster = admin.describe_cluster()
    assert [b["broker_id"] for b in cluster["brokers"]] == [1]
    admin.close()


def test_offsets_for_times_returns_first_offset_at_or_after_timestamp(node: OttlaProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    base = time.time_ns() // 10**9 * 1000 - 600_000  # recent enough to survive retention
    for i in range(100):
        producer.produce(topic, b"v", partition=0, timestamp=base + i * 1000)
    producer.flush(WAIT_S)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "times"})

    def offset(timestamp: int) -> int:
        found: int = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], WAIT_S)[0].offset
        return found

    assert [offset(base), offset(base + 41_500), offset(base + 99_000)] == [0, 42, 99]
    assert offset(base + 100_000) == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 100)
    consumer.close()
