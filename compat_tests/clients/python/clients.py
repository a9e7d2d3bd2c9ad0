"""confluent-kafka, kafka-python and aiokafka.

``clients.py CLIENT all BOOTSTRAP TOPIC GROUP``: write with each codec, read it all back, print one line of JSON.
``clients.py CLIENT member BOOTSTRAP TOPIC GROUP``: read as a member of a group until killed, a line for each record.
``clients.py confluent new-member|sharer BOOTSTRAP TOPIC GROUP``: the same in a group of KIP-848, and in a share group.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

COUNT = 40
BASE_MS = int(os.environ.get("COMPAT_BASE_MS", "0"))
BIG = 1_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[bytes | None, bytes | None, bytes, int]


def make_records(codec: str) -> list[Row]:
    """Return the records that the test writes with a codec."""
    return [
        (
            None if i % 7 == 0 else b"key-%d" % i,
            None if i % 11 == 5 else f"{codec}-{i}".encode(),
            b"%d" % i,
            BASE_MS + i,
        )
        for i in range(COUNT)
    ]


def text(raw: bytes | None) -> str | None:
    """Return bytes as text; None stays None."""
    return None if raw is None else raw.decode()


def confluent_group_protocols(mode: str, bootstrap: str, topic: str, group: str) -> None:
    """Run a member of a group of KIP-848, or of a share group."""
    from confluent_kafka import Consumer, ShareConsumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    if mode == "sharer":
        sharer = ShareConsumer(settings)
        sharer.subscribe([topic])
        while True:
            for message in sharer.poll(0.5):
                if message.error() is None:
                    print(message.partition(), message.value().decode(), flush=True)
    consumer = Consumer({**settings, "group.protocol": "consumer", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            print(message.partition(), message.value().decode(), flush=True)


def confluent(mode: str, bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Run a mode with confluent-kafka; return what it read, written as JSON."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "check.crcs": True}
    settings |= {"group.id": group, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    consumer = Consumer(settings)
    if mode == "member":
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                print(message.partition(), message.value().decode(), flush=True)
    big_topic = f"{topic}-big"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, 2, 1), NewTopic(big_topic, 1, 1)]).values():
        done.result(120)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for key, value, n, at in make_records(codec):
            producer.produce(topic, value, key, headers=[("n", n)], timestamp=at)
        assert producer.flush(120) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1_048_588})
    producer.produce(big_topic, b"x" * BIG)
    assert producer.flush(120) == 0
    consumer.subscribe([topic, big_topic])
    got, big = [], 0
    while len(got) < COUNT * len(CODECS) or not big:
        message = consumer.poll(120)
        assert message is not None
        if message.topic() == big_topic:
            big = len(message.value())
        else:
            n = dict(message.headers())["n"]
            got.append([text(message.key()), text(message.value()), text(n), message.timestamp()[1]])
    consumer.commit(asynchronous=False)
    end = sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in (0, 1))
    state = admin.describe_consumer_groups([group])[group].result(120).state.name
    consumer.close()
    admin.delete_topics([big_topic])[big_topic].result(120)
    deleted = big_topic not in admin.list_topics(timeout=120).topics
    return {"codecs": CODECS, "got": got, "end": end, "big": big, "deleted": deleted, "state": state.capitalize()}


def kafka_python(mode: str, bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Run a mode with kafka-python; return what it read, written as JSON."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

    settings = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    settings |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
    if mode == "member":
        for message in KafkaConsumer(topic, **settings):
            print(message.partition, message.value.decode(), flush=True)
    big_topic = f"{topic}-big"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 2, 1), NewTopic(big_topic, 1, 1)])
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            max_request_size=2_000_000,
        )
        for key, value, n, at in make_records(codec):
            producer.send(topic, value=value, key=key, headers=[("n", n)], timestamp_ms=at)
        if codec == "none":
            producer.send(big_topic, b"x" * BIG)
        producer.flush(120)
        producer.close()
    consumer = KafkaConsumer(topic, big_topic, consumer_timeout_ms=20_000, **settings)
    got, big = [], 0
    for message in consumer:
        if message.topic == big_topic:
            big = len(message.value)
        else:
            n = dict(message.headers)["n"]
            got.append([text(message.key), text(message.value), text(n), message.timestamp])
        if big and len(got) == COUNT * len(CODECS):
            break
    consumer.commit()
    end = sum(consumer.end_offsets([TopicPartition(topic, p) for p in (0, 1)]).values())
    consumer.close()
    admin.delete_topics([big_topic])
    deleted = big_topic not in admin.list_topics()
    admin.close()
    return {"codecs": CODECS, "got": got, "end": end, "big": big, "deleted": deleted}


async def aiokafka(mode: str, bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Run a mode with aiokafka; return what it read, written as JSON."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    settings = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    settings |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
    if mode == "member":
        member = AIOKafkaConsumer(topic, **settings)
        await member.start()
        async for message in member:
            print(message.partition, message.value.decode(), flush=True)
    big_topic = f"{topic}-big"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1), NewTopic(big_topic, 1, 1)])
    for codec in CODECS:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            max_request_size=1_048_588,
        )
        await producer.start()
        for key, value, n, at in make_records(codec):
            await producer.send(topic, value, key=key, headers=[("n", n)], timestamp_ms=at)
        if codec == "none":
            await producer.send_and_wait(big_topic, b"x" * BIG)
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, big_topic, **settings)
    await consumer.start()
    got, big = [], 0
    while len(got) < COUNT * len(CODECS) or not big:
        for messages in (await consumer.getmany(timeout_ms=5000)).values():
            for m in messages:
                if m.topic == big_topic:
                    big = len(m.value)
                else:
                    got.append([text(m.key), text(m.value), text(m.headers[0][1]), m.timestamp])
    await consumer.commit()
    end = sum((await consumer.end_offsets([TopicPartition(topic, p) for p in (0, 1)])).values())
    await consumer.stop()
    await admin.delete_topics([big_topic])
    deleted = big_topic not in await admin.list_topics()
    await admin.close()
    return {"codecs": CODECS, "got": got, "end": end, "big": big, "deleted": deleted}


def main() -> None:
    """Run a mode of a client by the command line, and print the outcome."""
    client, *rest = sys.argv[1:]
    if rest[0] in ("new-member", "sharer"):
        confluent_group_protocols(*rest)
    if client == "aiokafka":
        outcome = asyncio.run(asyncio.wait_for(aiokafka(*rest), None if rest[0] == "member" else 60))
    else:
        outcome = {"confluent": confluent, "kafka-python": kafka_python}[client](*rest)
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
